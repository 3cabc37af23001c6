"""An upstream that does exactly what a test wants, also what no engine should do."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

__all__ = ["Call", "Script", "ScriptedUpstream", "answer", "event", "hang", "scripted", "stream"]


class Call:
    """One request as the upstream sees it."""

    def __init__(
        self, head: str, *, body: bytes, writer: asyncio.StreamWriter, number: int
    ) -> None:
        request_line, *header_lines = head.split("\r\n")
        self.method, self.path, _ = request_line.split(" ", 2)
        self.headers = {
            name.strip().lower(): value.strip()
            for name, value in (line.split(":", 1) for line in header_lines if line)
        }
        self.body = body
        self.number = number
        self.started_s = time.monotonic()
        self.aborted_s: float | None = None
        self.is_ended = False
        self._writer = writer
        self._left = asyncio.Event()

    @property
    def members(self) -> dict[str, Any]:
        """The body as JSON."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    async def start(self, status: int = 200, *, content_type: str = "text/event-stream") -> None:
        """Send a head for a chunked body."""
        await self.send(
            f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )

    async def chunk(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Send the end of a chunked body."""
        await self.send(b"0\r\n\r\n")
        self.is_ended = True

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def cut(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        await self._left.wait()

    def leave(self) -> None:
        """Note that the client has left."""
        self.aborted_s = time.monotonic()
        self._left.set()


Script = Callable[[Call], Awaitable[None]]


class ScriptedUpstream:
    """Serves scripts, and keeps every call to the two paths that generate."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.metrics: Callable[[], str] | None = None
        self.models = b"{}"
        self.is_hung = False
        self.calls: list[Call] = []
        self.pages_asked = 0
        self.running = 0
        self.running_max = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, backlog=4_096)
        host, bound = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{bound}"

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def aborted(self) -> list[Call]:
        """Calls whose client left before the end."""
        return [call for call in self.calls if call.aborted_s is not None]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next(
                (
                    int(line.split(":")[1])
                    for line in head.lower().split("\r\n")
                    if line.startswith("content-length:")
                ),
                0,
            )
            call = Call(
                head, body=await reader.readexactly(length), writer=writer, number=len(self.calls)
            )
            self.pages_asked += call.method == "GET"
            if self.is_hung:
                await asyncio.Event().wait()
            if call.method == "GET":
                await self._page(call)
            else:
                await self._run(call, reader)

    async def _page(self, call: Call) -> None:
        if call.path == "/metrics" and self.metrics is not None:
            await answer(call, self.metrics().encode(), content_type="text/plain")
        elif call.path in {"/health", "/v1/models"}:
            await answer(call, self.models if call.path == "/v1/models" else b"{}")
        else:
            await answer(call, b"{}", status=404)

    async def _run(self, call: Call, reader: asyncio.StreamReader) -> None:
        self.calls.append(call)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        watching = asyncio.create_task(self._watch(call, reader))
        try:
            await self.script(call)
        finally:
            self.running -= 1
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, call: Call, reader: asyncio.StreamReader) -> None:
        """Note when the client leaves; it sends nothing more while it waits."""
        with contextlib.suppress(ConnectionError):
            if await reader.read(1) != b"":
                return
        if not call.is_ended:
            call.leave()


async def answer(
    call: Call, body: bytes, *, status: int = 200, content_type: str = "application/json"
) -> None:
    """Send a whole answer."""
    await call.send(
        f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    call.is_ended = True


async def hang(call: Call) -> None:
    """Accept and never answer."""
    await call.gone()


def event(text: str = "x", *, finish: str | None = None) -> bytes:
    """A chunk of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def stream(count: int = 5, *, gap_s: float = 0.0, has_usage: bool = True) -> Script:
    """Stream so many chunks of one token, the usage where it was asked for, and the end."""

    async def script(call: Call) -> None:
        await call.start()
        for index in range(count):
            await call.chunk(event(finish="length" if index == count - 1 else None))
            if gap_s:
                await asyncio.sleep(gap_s)
        options = call.members.get("stream_options") or {}
        if has_usage and options.get("include_usage"):
            usage = {"prompt_tokens": 9, "completion_tokens": count}
            chunk = {"id": "c", "choices": [], "usage": usage}
            await call.chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()

    return script


@contextlib.asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[ScriptedUpstream]:
    """A scripted upstream for one test."""
    upstream = ScriptedUpstream(script)
    await upstream.start()
    try:
        yield upstream
    finally:
        await upstream.stop()
