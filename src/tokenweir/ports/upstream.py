"""How is a request sent to an engine or a provider, and what can go wrong on the way?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from tokenweir.core.errors import TokenweirError

__all__ = [
    "Headers",
    "Upstream",
    "UpstreamBroken",
    "UpstreamError",
    "UpstreamResponse",
    "UpstreamUnreachable",
]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Header names in lower case with their values, in order, repeated names kept."""


class UpstreamError(TokenweirError):
    """The upstream failed us; no text of prompt or answer is in the message."""


class UpstreamUnreachable(UpstreamError):
    """No connection came about: the request has not been seen by anyone."""


class UpstreamBroken(UpstreamError):
    """The connection broke, or what came was not HTTP."""


class UpstreamResponse(Protocol):
    """An answer whose body is still arriving; it must be closed."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Headers:
        """The headers as received, names in lower case."""
        ...

    async def next_chunk(self) -> bytes:
        """Return the next piece of the body as it arrives, empty at its end.

        Raises:
            UpstreamBroken: The body ended before its end.
        """
        ...

    def close(self) -> None:
        """Let go of it: back to the pool at its end, before it the connection is cut at once."""
        ...


class Upstream(Protocol):
    """One replica's HTTP side. It bounds the time to connect; all other waiting is cancelled."""

    async def send(
        self, method: str, target: str, *, headers: Headers, body: bytes | None
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its answer.

        Args:
            method: As in HTTP.
            target: Path and query.
            headers: Without ``host``, lengths and hop-by-hop ones.
            body: Sent as it is.

        Raises:
            UpstreamUnreachable: No connection.
            UpstreamBroken: It broke before the head was complete.
        """
        ...
