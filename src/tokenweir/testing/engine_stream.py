"""What does a request wait for while the engine works on it?

An ``AnswerStream`` stands between the stepping loop, which notes output tokens, and the one
coroutine that sends them: a token costs one small event, and what piled up leaves in one piece.
"""

from __future__ import annotations

import asyncio

from tokenweir.core.units import Nanos
from tokenweir.engine.sequence import Sequence
from tokenweir.testing.engine_forms import Writer
from tokenweir.testing.engine_wire import EngineCall

__all__ = ["AnswerStream"]


class AnswerStream:
    """One answer on its way to its client; owned by the server."""

    __slots__ = (
        "_is_streamed",
        "_pieces",
        "_wake",
        "_writer",
        "arrival_ns",
        "is_cut",
        "is_ended",
        "last_token_ns",
        "sent_tokens",
        "sequence",
    )

    def __init__(
        self, sequence: Sequence, call: EngineCall, *, writer: Writer, now_ns: Nanos
    ) -> None:
        self.sequence = sequence
        self.arrival_ns = now_ns
        self.last_token_ns = now_ns
        self.sent_tokens = 0
        self.is_ended = False
        self.is_cut = False
        self._is_streamed = call.is_stream
        self._writer = writer
        self._pieces: list[bytes] = []
        self._wake: asyncio.Future[None] | None = None

    def add_token(self, *, is_last: bool) -> None:
        """Note that the engine produced the next output token."""
        index = self.sent_tokens
        self.sent_tokens = index + 1
        if not self._is_streamed:
            if not is_last:
                return
            self._pieces.append(self._writer.whole())
        else:
            if index == 0:
                self._pieces.append(self._writer.opening())
            self._pieces.append(self._writer.token(index))
            if is_last:
                self._pieces.append(self._writer.closing())
        self.is_ended = is_last
        self._notify()

    def cut(self) -> None:
        """End without an ending: the client is gone or the server stops."""
        self.is_cut = True
        self._notify()

    async def take(self) -> bytes:
        """Wait until there is something to send or the stream was cut; return it, maybe empty."""
        while not self._pieces and not self.is_cut:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    def _notify(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)
