"""Which headers are passed on, and which belong to one connection or to us alone?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenweir.http.asgi import HeaderList, header

__all__ = ["for_client", "for_upstream", "request_id"]

_HOP_BY_HOP = frozenset({
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
})
# Length and host are the client's own business with each side; a compressed answer could not be
# accounted; an expectation was met by us.
_NOT_UPSTREAM = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"accept-encoding",
    b"expect",
    b"x-request-id",
}
# The server sets date and its own name; the id is ours to return.
_NOT_CLIENT = _HOP_BY_HOP | {b"date", b"server", b"x-request-id"}
_OURS = b"x-tokenweir-"
_ID_BYTES_MAX = 128


def for_upstream(headers: Sequence[tuple[bytes, bytes]], *, request_id: bytes) -> HeaderList:
    """Return a request's headers as an upstream gets them."""
    named = _named_by_connection(headers)
    passed = [
        (name, value)
        for name, value in headers
        if name not in _NOT_UPSTREAM and name not in named and not name.startswith(_OURS)
    ]
    passed.append((b"x-request-id", request_id))
    return passed


def for_client(headers: Sequence[tuple[bytes, bytes]], *, keeps_length: bool) -> HeaderList:
    """Return an answer's headers as the client gets them.

    Args:
        headers: As the upstream sent them.
        keeps_length: False where the body may be shortened on its way.
    """
    named = _named_by_connection(headers)
    return [
        (name, value)
        for name, value in headers
        if name not in _NOT_CLIENT
        and name not in named
        and not name.startswith(_OURS)
        and (keeps_length or name != b"content-length")
    ]


def request_id(headers: Iterable[tuple[bytes, bytes]], *, default: str) -> bytes:
    """Return the client's ``x-request-id`` where it has a sane one, else the default."""
    value = header(headers, b"x-request-id")
    if value and len(value) <= _ID_BYTES_MAX and value.isascii() and value.decode().isprintable():
        return value
    return default.encode()


def _named_by_connection(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that any ``connection`` line names: they go no further either."""
    values = [value for name, value in headers if name == b"connection"]
    if all(value in {b"keep-alive", b"close"} for value in values):
        return frozenset()
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))
