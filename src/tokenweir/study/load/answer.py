"""What does a stream of server-sent events tell about its tokens?

Reads as little as possible: events are told apart by their bytes, and only the usage chunk, which
comes once, is parsed. Comments and the opening role chunk are no tokens.
"""

from __future__ import annotations

import json

from tokenweir.core.units import Nanos

__all__ = ["AnswerReader"]

_BUFFER_BYTES_MAX = 1024 * 1024


class AnswerReader:
    """Takes in the body of one streamed answer as it comes."""

    __slots__ = (
        "_rest",
        "_token_events",
        "_usage_tokens",
        "error",
        "first_token_ns",
        "is_done",
        "last_token_ns",
    )

    def __init__(self) -> None:
        self.first_token_ns: Nanos | None = None
        self.last_token_ns: Nanos | None = None
        self.is_done = False
        self.error: str | None = None
        self._rest = b""
        self._token_events = 0
        self._usage_tokens: int | None = None

    @property
    def output_tokens(self) -> int:
        """Output tokens by the engine's own count, else the number of events with text."""
        return self._token_events if self._usage_tokens is None else self._usage_tokens

    def feed(self, data: bytes, *, now_ns: Nanos) -> None:
        """Take in the next piece of the body, received at ``now_ns``."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        if len(self._rest) > _BUFFER_BYTES_MAX:
            self.error = "an event without an end"
            self._rest = b""
        for event in events:
            if event.startswith(b"data: "):
                self._take(event[6:], now_ns=now_ns)
            elif event.startswith(b"event: error"):
                self.error = "error_event"

    def _take(self, payload: bytes, *, now_ns: Nanos) -> None:
        if payload == b"[DONE]":
            self.is_done = True
        elif b'"usage":{' in payload or b'"usage": {' in payload:
            self._take_usage(payload)
        elif b'"content":""' in payload or b'"choices":[]' in payload:
            return
        elif payload.startswith(b'{"error"'):
            self.error = "error_event"
        else:
            self._token_events += 1
            if self.first_token_ns is None:
                self.first_token_ns = now_ns
            self.last_token_ns = now_ns

    def _take_usage(self, payload: bytes) -> None:
        try:
            self._usage_tokens = int(json.loads(payload)["usage"]["completion_tokens"])
        except (ValueError, KeyError, TypeError):
            self.error = "a usage chunk that is not understood"
