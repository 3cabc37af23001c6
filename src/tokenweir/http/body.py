"""How is a request body read without ever holding more than its cap?"""

from __future__ import annotations

from tokenweir.http.asgi import Receive, Scope, header

__all__ = ["BodyTooLarge", "ClientGone", "read_body", "skip_body"]


class BodyTooLarge(Exception):
    """The body is longer than the cap, whatever its Content-Length said."""


class ClientGone(Exception):
    """The client left before its request was complete."""


async def read_body(scope: Scope, receive: Receive, *, bytes_max: int) -> bytes:
    """Read a request body.

    Args:
        scope: Of the request.
        receive: Of the request.
        bytes_max: The cap, 1 or more. At most this and one network read are held.

    Raises:
        BodyTooLarge: It is announced or turns out to be longer.
        ClientGone: The connection ended first.
    """
    announced = header(scope["headers"], b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > bytes_max:
        raise BodyTooLarge
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > bytes_max:
            raise BodyTooLarge
        return body
    parts = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts += message.get("body", b"")
        if len(parts) > bytes_max:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(parts)
        message = await receive()


async def skip_body(receive: Receive) -> None:
    """Read what is left of a body and throw it away, until it ends or the client is gone."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
