"""The emulated engine's application, driven step by step without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from tokenweir.core.profile import EngineProfile
from tokenweir.engine.batch import Engine
from tokenweir.testing.engine_app import EngineApp

PROFILE = EngineProfile(
    name="small",
    source="tests",
    step_ns=1_000_000,
    step_tokens_max=10,
    chunk_tokens_max=10,
    kv_tokens=40,
    sequences_max=4,
)


class Client:
    """One request on its way through the application."""

    def __init__(
        self, app: EngineApp, *, path: str = "/v1/chat/completions", **fields: Any
    ) -> None:
        prompt = {"messages": [{"role": "user", "content": "hi"}]}
        body = json.dumps({**prompt, **fields}).encode()
        self._inbox: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.sent: list[MutableMapping[str, Any]] = []
        scope = {"type": "http", "method": "POST", "path": path}
        self.task = asyncio.create_task(app(scope, self._inbox.get, self._take))

    async def _take(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    def leave(self) -> None:
        """Close the connection."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """Status of the answer."""
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(m["body"] for m in self.sent if m["type"] == "http.response.body")


async def settle() -> None:
    """Let every coroutine that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def step(app: EngineApp, count: int = 1) -> None:
    """Run steps, and let the streams send after each."""
    for _ in range(count):
        app.deliver(app.engine.step(), now_ns=app.engine.step_index * PROFILE.step_ns)
        await settle()


@asynccontextmanager
async def running(*, queued_max: int | None = None) -> AsyncIterator[EngineApp]:
    """Yield an application, and stop it at the end."""
    app = EngineApp(Engine(PROFILE), queued_max=queued_max)
    try:
        yield app
    finally:
        app.stop()
        await settle()


async def test_stream_when_stepped_then_each_step_sends_one_token_in_one_piece() -> None:
    """A streaming request gets one message per step, and the role comes with the first token."""
    async with running() as app:
        client = Client(app, stream=True, emulated_output_tokens=3)
        await settle()
        pieces = []
        for _ in range(3):
            await step(app)
            pieces.append(len(client.sent))
        assert pieces == [2, 3, 4]
        assert client.body.count(b'"role":"assistant"') == 1
        assert client.body.endswith(b"data: [DONE]\n\n")
        assert client.task.done()
        assert app.metrics.finished == {"stop": 1}
        assert app.metrics.generation_tokens_total == 3


async def test_stream_when_its_client_leaves_then_the_engine_is_free_at_once() -> None:
    """A disconnect takes the request out of the engine and counts as abort."""
    async with running() as app:
        client = Client(app, stream=True, emulated_output_tokens=20)
        await settle()
        await step(app, 2)
        client.leave()
        await settle()
        assert app.engine.is_idle
        assert app.engine.kv_used_tokens == 0
        assert client.task.done()
        assert app.metrics.finished == {"abort": 1}


async def test_plain_answer_when_its_client_leaves_then_the_engine_is_free_at_once() -> None:
    """A request that is not streamed is watched just the same."""
    async with running() as app:
        client = Client(app, emulated_output_tokens=20)
        await settle()
        await step(app, 2)
        client.leave()
        await settle()
        assert app.engine.is_idle
        assert client.sent == []
        assert app.metrics.finished == {"abort": 1}


async def test_waiting_request_when_its_client_leaves_then_it_never_runs() -> None:
    """A client that leaves the engine's line leaves nothing behind."""
    async with running() as app:
        first = Client(app, emulated_output_tokens=30, max_tokens=30)
        second = Client(app, emulated_output_tokens=5, path="/v1/completions", prompt=[1] * 36)
        await settle()
        await step(app)
        assert app.engine.waiting == 1
        second.leave()
        await settle()
        assert app.engine.waiting == 0
        assert second.task.done()
        assert not first.task.done()


async def test_request_when_the_last_token_and_the_leaving_meet_then_it_ends_once() -> None:
    """A client that leaves after the last step began and before its end counts once, as abort."""
    async with running() as app:
        client = Client(app, stream=True, emulated_output_tokens=1)
        await settle()
        result = app.engine.step()
        client.leave()
        await settle()
        app.deliver(result, now_ns=0)
        assert app.engine.is_idle
        assert app.metrics.finished == {"abort": 1}


async def test_request_when_the_queue_limit_is_reached_then_it_is_busy_as_vllm() -> None:
    """Above the limit the engine answers 503 without Retry-After, in vLLM's words."""
    async with running(queued_max=1) as app:
        Client(app, stream=True, emulated_output_tokens=5)
        await settle()
        client = Client(app, stream=True, emulated_output_tokens=5)
        await settle()
        error = json.loads(client.body)["error"]
        assert client.status == 503
        assert [name for name, _ in client.sent[0]["headers"] if b"retry" in name] == []
        assert error["type"] == "Service Unavailable"
        assert error["message"].startswith("The engine is currently busy")
        assert app.metrics.rejections_total == 1


async def test_preempted_stream_when_it_runs_again_then_no_token_is_missing_or_twice() -> None:
    """Preemption shows as a pause only: all words come, each once."""
    async with running() as app:
        clients = [Client(app, stream=True, emulated_output_tokens=16) for _ in range(3)]
        await settle()
        await step(app, 120)
        assert app.engine.preemptions_total > 0
        for client in clients:
            assert client.task.done()
            assert client.body.count(b'"delta":{"content":') == 16


async def test_unknown_path_when_asked_then_it_is_not_found() -> None:
    """Other paths are answered 404 in the error form."""
    async with running() as app:
        client = Client(app, path="/v1/nothing")
        await settle()
        assert client.status == 404
        assert json.loads(client.body)["error"]["code"] == 404
