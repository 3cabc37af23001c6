"""How does the emulated engine serve embeddings?

The engine reads all texts as one prompt and generates nothing, but a step in which the prompt is
read is a step with one sequence: it counts as one token. A vector follows from its text alone.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import struct
from typing import Any

from tokenweir.testing.engine_wire import (
    EngineCall,
    call_from,
    compact,
    json_object,
    plain_prompt,
)

__all__ = ["EMBEDDINGS_PATH", "EmbeddingWriter", "parse_embedding"]

EMBEDDINGS_PATH = "/v1/embeddings"

_DIMENSIONS = 8


def parse_embedding(path: str, body: bytes, *, context_tokens: int) -> EngineCall:
    """Understand a request body.

    Raises:
        WireError: The body is malformed, or the request could never run.
    """
    fields = json_object(body)
    entries = fields.get("input")
    # One text or one list of token ids, or a list of either.
    is_many = isinstance(entries, list) and not all(type(entry) is int for entry in entries)
    texts = entries if is_many and isinstance(entries, list) else [entries]
    prompts = [plain_prompt({"input": text}, name="input") for text in texts]
    whole = "\n".join(text for text, _ in prompts), sum(tokens for _, tokens in prompts)
    asked = {"model": fields.get("model"), "emulated_output_tokens": 1}
    return dataclasses.replace(
        call_from(asked, whole, path=path, context_tokens=context_tokens),
        inputs=tuple(text for text, _ in prompts),
        is_base64=fields.get("encoding_format") == "base64",
    )


class EmbeddingWriter:
    """Writes one answer, which is never a stream."""

    __slots__ = ("_call", "_id")

    def __init__(self, call: EngineCall, answer_id: str) -> None:
        self._call = call
        self._id = answer_id

    def opening(self) -> bytes:
        """Return nothing."""
        return b""

    def token(self, index: int) -> bytes:
        """Return nothing."""
        return b""

    def closing(self) -> bytes:
        """Return nothing."""
        return b""

    def whole(self) -> bytes:
        """Return the answer as one body."""
        tokens = self._call.prompt_tokens
        data = [self._embedding(index) for index in range(len(self._call.inputs))]
        return compact({
            "id": self._id,
            "object": "list",
            "data": data,
            "model": self._call.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        })

    def _embedding(self, index: int) -> dict[str, Any]:
        text = self._call.inputs[index]
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIMENSIONS)
        vector = [byte / 255 for byte in digest.digest()]
        packed = struct.pack(f"<{_DIMENSIONS}f", *vector)
        shown = base64.b64encode(packed).decode("ascii") if self._call.is_base64 else vector
        return {"object": "embedding", "index": index, "embedding": shown}
