"""How does aiohttp send requests to one replica? Pooled, streaming, and closing means aborting.

No limit on connections: a limit would be a second queue in front of the engine, without bounds and
without classes. How many requests are under way is decided by admission.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.ports.upstream import Headers, UpstreamBroken, UpstreamUnreachable

__all__ = ["AiohttpResponse", "AiohttpUpstream", "open_session"]

# Engines on uvicorn close an idle connection after 5 s; ours must go first, or a request is sent
# into a connection that is being closed.
_KEEPALIVE_S = 3.0
_PIECE_BYTES = 1 << 18
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SKIPPED_AUTO_HEADERS = ("user-agent", "accept", "accept-encoding", "content-type")

_logger = logging.getLogger(__name__)


def open_session(*, connect_timeout_ns: Nanos) -> aiohttp.ClientSession:
    """Return a session for any number of replicas; to be closed by the caller.

    Args:
        connect_timeout_ns: Longest time to get a connection, above 0. Nothing else is timed here:
            who waits for an answer cancels.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=s_from_ns(connect_timeout_ns))
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_SKIPPED_AUTO_HEADERS,
    )


class AiohttpResponse:
    """An answer whose body is still arriving."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        """Wrap a response whose head is complete."""
        self._response = response
        self.status: int = response.status
        self.headers: Headers = [(name.lower(), value) for name, value in response.raw_headers]

    async def next_chunk(self) -> bytes:
        """Return what has arrived of the body, empty at its end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamBroken(f"upstream broke off its answer: {_kind(error)}") from error

    def close(self) -> None:
        """Cut the connection at once, unless the body has come to its end."""
        self._response.close()


class AiohttpUpstream:
    """One replica, reached through a shared session."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        """Prepare.

        Args:
            session: Shared, not closed here.
            base_url: Scheme, host, port and perhaps a path in front of ``/v1``.
        """
        self._session = session
        self._base_url = base_url.rstrip("/")

    async def send(
        self, method: str, target: str, *, headers: Headers, body: bytes | None
    ) -> AiohttpResponse:
        """Send a request and wait for the head of its answer."""
        merged: CIMultiDict[str] = CIMultiDict()
        for name, value in headers:
            merged.add(name.decode("latin-1"), _text(value))
        data: Any = body
        if body is not None and len(body) > _PIECE_BYTES:
            merged["content-length"] = str(len(body))
            data = _pieces(body)
        try:
            response = await self._session.request(
                method,
                # Encoded already: what the client sent is not to be normalised on its way.
                URL(self._base_url + target, encoded=True),
                headers=merged,
                data=data,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamUnreachable(
                f"no connection to {self._base_url}: {_kind(error)}"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if isinstance(error, aiohttp.ClientResponseError):
                _logger.warning("%s answered with what is not HTTP", self._base_url)
            raise UpstreamBroken(f"{self._base_url} broke off: {_kind(error)}") from error
        fault = _fault_of_head(response)
        if fault is not None:
            response.close()
            _logger.warning("%s answered with %s", self._base_url, fault)
            raise UpstreamBroken(f"{self._base_url} answered with {fault}")
        return AiohttpResponse(response)


def _fault_of_head(response: aiohttp.ClientResponse) -> str | None:
    """Say why a head cannot be passed on, or None; its text is not repeated."""
    if not 200 <= response.status < 600:
        # 101 as well: nobody has asked for another protocol.
        return f"status {response.status}, which ends no request"
    for name, value in response.raw_headers:
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            return "a header that is none"
    return None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a large body piece by piece, so that writing it does not hold up the loop."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _kind(error: BaseException) -> str:
    """Name an error by its type: its text may quote what was sent."""
    return type(error).__name__
