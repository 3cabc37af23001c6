"""What may one connection do, and who is told when it ends? uvicorn's protocol, made strict.

uvicorn wakes only the newest request of a connection when that ends, and stops reading where
requests are pipelined, so that nobody notices a client that has left: what the older ones hold
would stay held for the length of their answers. Here reading goes on, up to a bound, and every
request of the connection is told.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tokenweir.core.units import NS_PER_S, Nanos, s_from_ns
from tokenweir.settings.model import LimitSettings

__all__ = ["Protocol", "protocol_of"]

# Of heads that come behind a body.
_HEADS_BYTES = 1 << 16
# Beside those with requests under way: idle ones, and whoever is told that there is no room.
_SPARE_CONNECTIONS = 1_000


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        *args: Any,
        head_timeout_ns: Nanos,
        ahead_bytes_max: int,
        connections_max: int,
        stall_timeout_ns: Nanos,
        **kwargs: Any,
    ) -> None:
        """Prepare.

        Args:
            args: uvicorn's.
            head_timeout_ns: Longest time for the head of a request, from the connection or from its
                first byte, above 0.
            ahead_bytes_max: What may be sent behind a request that is not answered yet, 1 or more;
                a client that sends more is cut.
            connections_max: Of the listener, 1 or more; further ones are closed at once.
            stall_timeout_ns: Longest time for a client to take what is written, above 0. It also
                ends connections that are closed, but whose last bytes nobody takes.
            kwargs: uvicorn's.
        """
        super().__init__(*args, **kwargs)
        self._head_timeout_s = s_from_ns(head_timeout_ns)
        self._ahead_bytes_max = ahead_bytes_max
        self._connections_max = connections_max
        self._stall_timeout_s = s_from_ns(stall_timeout_ns)
        self._stall_timer: asyncio.TimerHandle | None = None
        self._ahead_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        # Requests that may not be answered yet, in their order.
        self._cycles: list[RequestResponseCycle] = []
        # Set while the parser reads a head that has been read before.
        self._is_reread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            transport.close()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of the connection."""
        self._end_head()
        self._end_stall()
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Read on, also where requests are pipelined."""
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > self._ahead_bytes_max:
                self.transport.abort()
            else:
                self.flow.resume_reading()
        else:
            self._ahead_bytes = 0
        if not self._cycles or self._cycles[-1].response_complete:
            self._await_head()

    def _feed(self, data: bytes) -> None:
        """Parse; a wish to speak another protocol is not granted, and costs no body."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser has let go behind the head, as if there were no body.
                data = data[upgrade.args[0] :]
                self._read_body_behind_head()
            else:
                return

    def _read_body_behind_head(self) -> None:
        """Go on with a parser that has read the same head, but for the upgrade."""
        framing = [
            b"%b: %b\r\n" % (name, value)
            for name, value in self.headers
            if name in {b"content-length", b"transfer-encoding"}
        ]
        self.cycle.more_body = True
        self.cycle.message_event.clear()
        self.parser = httptools.HttpRequestParser(self)
        self._is_reread = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
        self._is_reread = False

    def on_message_begin(self) -> None:
        """Take in the beginning of a request."""
        if not self._is_reread:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take in a piece of the target."""
        if not self._is_reread:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header."""
        if not self._is_reread:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin a request, or let it wait for the one before it."""
        if not self._is_reread:
            self._end_head()
            super().on_headers_complete()
            self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
            self._cycles.append(self.cycle)

    def pause_writing(self) -> None:
        """Give the client some time to take what is written."""
        super().pause_writing()
        self._end_stall()
        self._stall_timer = self.loop.call_later(self._stall_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _await_head(self) -> None:
        """Bound the time until the next head is complete; more of it gains no more time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_timeout_s, self._close_late)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_late(self) -> None:
        self._head_timer = None
        self.transport.close()


def protocol_of(limits: LimitSettings) -> functools.partial[Protocol]:
    """Return what uvicorn makes connections of."""
    return functools.partial(
        Protocol,
        head_timeout_ns=limits.body_timeout,
        # A client may send its next request, body and all, before we know that it has had the
        # last answer.
        ahead_bytes_max=limits.body + _HEADS_BYTES,
        connections_max=limits.connections + _SPARE_CONNECTIONS,
        # The request itself is stopped first, where it has not ended.
        stall_timeout_ns=limits.client_stall + NS_PER_S,
    )
