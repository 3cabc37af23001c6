"""How does the emulated engine serve the Messages API?

Events, bodies and errors have the form that vLLM 0.32 gave when it was recorded
(tests/fixtures/wire). The system text is taken as one message more.
"""

from __future__ import annotations

from typing import Any

from tokenweir.testing.engine_text import answer_words
from tokenweir.testing.engine_wire import (
    EngineCall,
    WireError,
    call_from,
    chat_messages,
    compact,
    json_object,
)

__all__ = ["MESSAGES_PATH", "MessageWriter", "message_error", "parse_message"]

MESSAGES_PATH = "/v1/messages"

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


def parse_message(path: str, body: bytes, *, context_tokens: int) -> EngineCall:
    """Understand a request body.

    Raises:
        WireError: The body is malformed, or the request could never run.
    """
    fields = json_object(body)
    if fields.get("max_tokens") is None:
        raise WireError("max_tokens: Field required", param="max_tokens")
    messages, system = fields.get("messages"), fields.get("system")
    if system is not None and isinstance(messages, list):
        messages = [{"role": "system", "content": system}, *messages]
    prompt = chat_messages({"messages": messages})
    return call_from(
        fields, prompt, path=path, context_tokens=context_tokens, maxima=("max_tokens",)
    )


def message_error(error: WireError) -> bytes:
    """Return an error's body in this API's form."""
    said = {"type": error.kind, "message": error.message}
    return compact({"type": "error", "error": said})


class MessageWriter:
    """Writes one answer."""

    __slots__ = ("_call", "_id", "_prefix", "_suffix")

    def __init__(self, call: EngineCall, answer_id: str) -> None:
        self._call = call
        self._id = answer_id
        delta = {"delta": {"type": "text_delta", "text": "\0"}, "index": 0}
        self._prefix, _, self._suffix = _event("content_block_delta", delta).partition(b"\\u0000")

    def opening(self) -> bytes:
        """Return what precedes the first token."""
        message = self._message(content=[], stop_reason=None, output_tokens=0)
        block = {"content_block": {"type": "text", "text": ""}, "index": 0}
        return _event("message_start", {"message": message}) + _event("content_block_start", block)

    def token(self, index: int) -> bytes:
        """Return the event of output token number ``index``."""
        return b"".join((self._prefix, answer_words(first=index, count=1), self._suffix))

    def closing(self) -> bytes:
        """Return what follows the last token."""
        delta = {"stop_reason": _STOP_REASONS[self._call.finish_reason], "stop_sequence": None}
        ended = {"delta": delta, "usage": self._usage(self._call.output_tokens)}
        return b"".join((
            _event("content_block_stop", {"index": 0}),
            _event("message_delta", ended),
            _event("message_stop", {}),
        ))

    def whole(self) -> bytes:
        """Return the answer as one body."""
        call = self._call
        text = answer_words(first=0, count=call.output_tokens).decode("ascii")
        return compact(
            self._message(
                content=[{"type": "text", "text": text}],
                stop_reason=_STOP_REASONS[call.finish_reason],
                output_tokens=call.output_tokens,
            )
        )

    def _message(
        self, *, content: list[dict[str, Any]], stop_reason: str | None, output_tokens: int
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._call.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": self._usage(output_tokens),
        }

    def _usage(self, output_tokens: int) -> dict[str, int]:
        return {"input_tokens": self._call.prompt_tokens, "output_tokens": output_tokens}


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), compact({"type": kind, **members}))
