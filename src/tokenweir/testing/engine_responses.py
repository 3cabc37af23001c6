"""How does the emulated engine serve the Responses API?

Events and bodies have the form that was recorded of OpenAI's own (tests/fixtures/wire), with the
members that clients read. Nothing is stored: what a request refers to elsewhere does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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

__all__ = ["RESPONSES_PATH", "ResponseWriter", "parse_response"]

RESPONSES_PATH = "/v1/responses"


def parse_response(path: str, body: bytes, *, context_tokens: int) -> EngineCall:
    """Understand a request body.

    Raises:
        WireError: The body is malformed, or the request could never run.
    """
    fields = json_object(body)
    for name in ("previous_response_id", "conversation"):
        if fields.get(name) is not None:
            raise WireError(f"{name} is not known here: nothing is stored", status=404, param=name)
    entries, instructions = fields.get("input"), fields.get("instructions")
    if isinstance(entries, str):
        entries = [{"role": "user", "content": entries}]
    if not isinstance(entries, list) or not entries:
        raise WireError("input must be a text or a list of messages", param="input")
    if isinstance(instructions, str):
        entries = [{"role": "system", "content": instructions}, *entries]
    prompt = chat_messages({"messages": entries})
    return call_from(
        fields, prompt, path=path, context_tokens=context_tokens, maxima=("max_output_tokens",)
    )


class ResponseWriter:
    """Writes one answer; every event has a number."""

    __slots__ = ("_call", "_created", "_id", "_item_id", "_numbered", "_prefix", "_suffix")

    def __init__(self, call: EngineCall, answer_id: str) -> None:
        self._call = call
        self._id = answer_id
        self._item_id = answer_id.replace("resp", "msg", 1)
        self._created = int(time.time())
        self._numbered = 0
        delta = {**self._place(), "delta": "\0", "logprobs": [], "sequence_number": 1}
        event = _event("response.output_text.delta", delta)
        self._prefix, _, rest = event.partition(b"\\u0000")
        self._suffix, _, _ = rest.rpartition(b"1")

    def opening(self) -> bytes:
        """Return what precedes the first token."""
        begun = {"response": self._response("in_progress", output=[])}
        item = {"item": self._item("in_progress", content=[]), "output_index": 0}
        part = {**self._place(), "part": _part("")}
        return b"".join((
            self._next("response.created", begun),
            self._next("response.in_progress", begun),
            self._next("response.output_item.added", item),
            self._next("response.content_part.added", part),
        ))

    def token(self, index: int) -> bytes:
        """Return the event of output token number ``index``."""
        word = answer_words(first=index, count=1)
        number = b"%d}\n\n" % self._number()
        return b"".join((self._prefix, word, self._suffix, number))

    def closing(self) -> bytes:
        """Return what follows the last token."""
        return b"".join(self._closing())

    def whole(self) -> bytes:
        """Return the answer as one body."""
        return compact(self._whole_response())

    def _closing(self) -> Iterator[bytes]:
        text, status = self._text(), self._status()
        done = {**self._place(), "logprobs": [], "text": text}
        yield self._next("response.output_text.done", done)
        yield self._next("response.content_part.done", {**self._place(), "part": _part(text)})
        item = self._item(status, content=[_part(text)])
        yield self._next("response.output_item.done", {"item": item, "output_index": 0})
        yield self._next(f"response.{status}", {"response": self._whole_response()})

    def _whole_response(self) -> dict[str, Any]:
        call, status = self._call, self._status()
        output = [self._item(status, content=[_part(self._text())])]
        usage = {
            "input_tokens": call.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": call.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": call.prompt_tokens + call.output_tokens,
        }
        return {**self._response(status, output=output), "usage": usage}

    def _response(self, status: str, *, output: list[dict[str, Any]]) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": cut,
            "instructions": None,
            "max_output_tokens": None,
            "model": self._call.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": None,
            "metadata": {},
        }

    def _item(self, status: str, *, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "status": status,
            "content": content,
            "role": "assistant",
        }

    def _place(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self._item_id, "output_index": 0}

    def _status(self) -> str:
        return "incomplete" if self._call.finish_reason == "length" else "completed"

    def _text(self) -> str:
        return answer_words(first=0, count=self._call.output_tokens).decode("ascii")

    def _number(self) -> int:
        number, self._numbered = self._numbered, self._numbered + 1
        return number

    def _next(self, kind: str, members: dict[str, Any]) -> bytes:
        return _event(kind, {**members, "sequence_number": self._number()})


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _event(kind: str, members: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), compact({"type": kind, **members}))
