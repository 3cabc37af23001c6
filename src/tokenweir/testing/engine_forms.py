"""In which form does the emulated engine take and answer the requests of a path?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tokenweir.testing.engine_embeddings import EMBEDDINGS_PATH, EmbeddingWriter, parse_embedding
from tokenweir.testing.engine_messages import (
    MESSAGES_PATH,
    MessageWriter,
    message_error,
    parse_message,
)
from tokenweir.testing.engine_responses import RESPONSES_PATH, ResponseWriter, parse_response
from tokenweir.testing.engine_wire import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    AnswerWriter,
    EngineCall,
    WireError,
    parse_call,
)

__all__ = ["FORMS", "EngineForm", "Writer"]


class Writer(Protocol):
    """Writes one answer, as a stream or as one body."""

    def opening(self) -> bytes:
        """Return what precedes the first token."""
        ...

    def token(self, index: int) -> bytes:
        """Return output token number ``index``; asked for in order."""
        ...

    def closing(self) -> bytes:
        """Return what follows the last token."""
        ...

    def whole(self) -> bytes:
        """Return the answer as one body."""
        ...


class _Parse(Protocol):
    def __call__(self, path: str, body: bytes, *, context_tokens: int) -> EngineCall: ...


@dataclass(frozen=True, slots=True)
class EngineForm:
    """One path.

    Attributes:
        path: Where requests are sent to.
        id_prefix: Of an answer's id.
        parse: Understands a body.
        writer: Made of a call and the answer's id.
        error: Writes an error's body.
    """

    path: str
    id_prefix: str
    parse: _Parse
    writer: Callable[[EngineCall, str], Writer]
    error: Callable[[WireError], bytes] = WireError.body


_ROWS = (
    EngineForm(CHAT_PATH, "chatcmpl-", parse_call, AnswerWriter),
    EngineForm(COMPLETIONS_PATH, "cmpl-", parse_call, AnswerWriter),
    EngineForm(EMBEDDINGS_PATH, "embd-", parse_embedding, EmbeddingWriter),
    EngineForm(RESPONSES_PATH, "resp_", parse_response, ResponseWriter),
    EngineForm(MESSAGES_PATH, "msg_", parse_message, MessageWriter, message_error),
)
FORMS: dict[str, EngineForm] = {form.path: form for form in _ROWS}
