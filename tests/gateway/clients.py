"""Requests as clients send them."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from yarl import URL

__all__ = ["CHAT", "TEXT", "chat", "post", "session"]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def chat(content: str = "hello there", **members: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": content}], **members}


@contextlib.asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session without a limit on connections."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
    ) as opened:
        yield opened


class Answer:
    """A whole answer."""

    def __init__(self, status: int, *, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def members(self) -> dict[str, Any]:
        """The body as JSON."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def code(self) -> str:
        """The error's code."""
        code: str = self.members["error"]["code"]
        return code

    @property
    def events(self) -> list[str]:
        """The data of every event."""
        return [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]


async def post(
    opened: aiohttp.ClientSession,
    url: str | URL,
    body: Any,
    *,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Send a request and read its whole answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    merged = {"content-type": "application/json", **(headers or {})}
    async with opened.post(url, data=data, headers=merged) as response:
        return Answer(
            response.status,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=await response.read(),
        )
