"""What does an ASGI server hand us, and how is a whole answer sent? Types and two functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias

__all__ = [
    "HeaderList",
    "Receive",
    "Scope",
    "Send",
    "header",
    "json_bytes",
    "send_body",
    "send_json",
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
HeaderList: TypeAlias = list[tuple[bytes, bytes]]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value of a header, its name in lower case, or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


def json_bytes(payload: Mapping[str, Any]) -> bytes:
    """Return compact JSON; non-ASCII is escaped, so that lone surrogates survive."""
    return json.dumps(payload, separators=(",", ":")).encode("ascii")


async def send_body(
    send: Send,
    body: bytes,
    *,
    status: int,
    content_type: bytes,
    headers: HeaderList | None = None,
    ends: bool = True,
) -> None:
    """Send a whole answer of known length; ``ends`` tells the server that it is one."""
    await send({
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *(headers or ()),
        ],
    })
    await send({"type": "http.response.body", "body": body, "more_body": not ends})


async def send_json(
    send: Send, payload: Mapping[str, Any], *, status: int = 200, headers: HeaderList | None = None
) -> None:
    """Send a JSON object as a whole answer."""
    await send_body(
        send,
        json_bytes(payload),
        status=status,
        content_type=b"application/json",
        headers=headers,
    )
