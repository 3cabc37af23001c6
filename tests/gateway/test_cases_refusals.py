"""What a refused client is told: conformance cases against a real gateway and engine."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.gateway.clients import CHAT, Answer, chat, post, session
from tests.gateway.processes import Server, engine, gateway, ledger_of, metric, started, status_of
from tests.gateway.scripted import Call, answer, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

ONE = {"policy": "concurrency", "concurrency": 1, "queue": {"items": 0}}


@pytest.fixture
async def engine_server() -> AsyncIterator[Server]:
    """An engine that produces 100 tokens a second per stream."""
    async with started(engine(profile="article", speed=1)) as server:
        yield server


def told(got: Answer) -> dict[str, Any]:
    """Our own member of the error."""
    member: dict[str, Any] = got.members["error"]["tokenweir"]
    return member


def check_retryable(got: Answer) -> None:
    """A retryable refusal says when to come back, in every form that clients read."""
    assert 1 <= int(got.headers["retry-after"]) <= 60
    millis = int(got.headers["retry-after-ms"])
    assert 0 < millis <= 60_000
    assert int(got.headers["retry-after"]) == -(-millis // 1_000)
    assert got.headers["x-should-retry"] == "true"
    assert got.headers["x-tokenweir-decision"] == "reject"
    assert got.headers["x-tokenweir-reason"] == got.code


@pytest.mark.case("CASE-G1")
async def test_retry_after_when_refused_then_backlog_divided_by_rate(
    engine_server: Server,
) -> None:
    """What is ahead, by the measured rate: the body's wait and the ledger's own figures agree."""
    # Who insists without a pause fills its tenant's minute of return slots; this is on the wait.
    pool = {"policy": "ledger", "queue": {"items": 3, "wait": "60s"}, "paced_returns": False}
    replicas = [{"url": engine_server.url, "kv_tokens": 2_000}]
    async with session() as client, gateway(pool={**pool, "replicas": replicas}) as server:
        url = server.url + CHAT
        # More than fits, for as long as it takes to see what the pool can do.
        until_s = time.monotonic() + 5.0

        async def insist() -> None:
            while time.monotonic() < until_s:
                if (await post(client, url, chat(max_tokens=100, ignore_eos=True))).status != 200:
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(insist() for _ in range(24)))
        body = chat(max_tokens=800, ignore_eos=True, stream=True)
        asking = [asyncio.create_task(post(client, url, body)) for _ in range(5)]
        await eventually(lambda: ledger_of(server)["queued"] == 3)
        refused = [await post(client, url, body) for _ in range(5)]
        pool_now = ledger_of(server)
        assert {(got.status, got.code) for got in refused} == {(429, "queue_full")}
        for got in refused:
            check_retryable(got)
        missing = told(refused[0])["used"] + 810 - told(refused[0])["limit"]
        expected_s = (pool_now["queue_debt_tokens"] + missing) / pool_now["rate_tokens_per_s"]
        assert told(refused[0])["wait"] == pytest.approx(expected_s, rel=0.3)
        millis = {got.headers["retry-after-ms"] for got in refused}
        # Jitter per request: equal advice would bring the herd back together.
        assert len(millis) > 1
        assert all(int(value) >= 1_000 * told(refused[0])["wait"] * 0.7 for value in millis)
        for task in asking:
            task.cancel()


@pytest.mark.case("CASE-G1")
async def test_retry_after_when_no_replica_is_healthy_then_there_too() -> None:
    """A pool without a replica says when to come back like any other."""
    async with session() as client, gateway("http://127.0.0.1:9") as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert (got.status, got.code) == (503, "no_healthy_replica")
        check_retryable(got)


@pytest.mark.case("CASE-G2")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (chat("word " * 20_000, max_tokens=5), "request_too_large"),
        (chat(max_tokens=3_000), "output_max_too_large"),
    ],
)
async def test_request_when_it_can_never_fit_then_final_and_without_retry_after(
    engine_server: Server, body: dict[str, Any], reason: str
) -> None:
    """Coming back would not help, so nobody is told to."""
    pool = {"policy": "ledger", "replicas": [{"url": engine_server.url, "kv_tokens": 2_000}]}
    async with session() as client, gateway(pool=pool) as server:
        got = await post(client, server.url + CHAT, body)
        assert (got.status, got.code) == (400, reason)
        assert "retry-after" not in got.headers
        assert "retry-after-ms" not in got.headers
        assert got.headers["x-should-retry"] == "false"
        assert told(got)["limit"] == 2_000


@pytest.mark.case("CASE-G3")
async def test_overload_when_at_any_stage_then_429_or_503_and_never_500(
    engine_server: Server,
) -> None:
    """Full queue, waited in vain, busy engine, no replica, shutting down: each has its status."""
    seen: set[tuple[int, str]] = set()
    pool = {"policy": "concurrency", "concurrency": 2, "queue": {"items": 3, "wait": "1500ms"}}
    async with session() as client, gateway(engine_server.url, pool=pool) as server:
        url = server.url + CHAT
        body = chat(max_tokens=200, ignore_eos=True)
        answers = await asyncio.gather(*(post(client, url, body) for _ in range(40)))
        seen |= {(got.status, got.code) for got in answers if got.status != 200}
        last = asyncio.create_task(post(client, url, body))
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        server.signal(signal.SIGTERM)
        await eventually(lambda: status_of(server.url + "/readyz") == 503)
        draining = await post(client, url, body)
        seen.add((draining.status, draining.code))
        check_retryable(draining)
        assert (await last).status == 200
    assert {(429, "queue_full"), (429, "queue_timeout"), (503, "draining")} <= seen
    assert {status for status, _ in seen} <= {429, 503}


@pytest.mark.case("CASE-G3")
async def test_overload_when_the_engine_refuses_then_429_before_and_after_the_queue() -> None:
    """The engine's own limit reaches the client as overload, not as a server error."""
    async with started(engine("--max-queued", "1", profile="article", speed=1)) as busy:
        pool = {"policy": "none"}
        async with session() as client, gateway(busy.url, pool=pool) as server:
            body = chat(max_tokens=100, ignore_eos=True)
            answers = await asyncio.gather(
                *(post(client, server.url + CHAT, body) for _ in range(6))
            )
            refused = [got for got in answers if got.status != 200]
            assert refused
            assert {(got.status, got.code) for got in refused} == {(429, "engine_busy")}
            for got in refused:
                check_retryable(got)


# --- the stock Python client --------------------------------------------------------------------


def client_of(server: Server, *, retries: int = 2) -> openai.AsyncOpenAI:
    """The real client, with its own defaults but for the address."""
    return openai.AsyncOpenAI(
        base_url=server.url + "/v1", api_key="unused", max_retries=retries, timeout=30
    )


async def complete(client: openai.AsyncOpenAI, tokens: int, *, content: str = "hello") -> Any:
    """Ask for an answer of so many tokens."""
    return await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": content}],
        max_tokens=tokens,
        extra_body={"ignore_eos": True},
    )


@pytest.mark.case("CASE-G5")
async def test_openai_client_when_refused_with_a_wait_then_it_comes_back_after_it(
    engine_server: Server,
) -> None:
    """The advice is obeyed to the millisecond, and the retry is served."""
    async with gateway(engine_server.url, pool=ONE) as server, client_of(server) as client:
        running = asyncio.create_task(complete(client, 100))
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        start_s = time.monotonic()
        got = await complete(client, 5)
        waited_s = time.monotonic() - start_s
        assert got.choices[0].finish_reason == "length"
        assert metric(server.admin_url, "tokenweir_refusals_total") >= 1
        # The shortest advice there is, 0.5 s; the client's own first pause is shorter.
        assert waited_s >= 0.5
        await running


@pytest.mark.case("CASE-G5")
async def test_openai_client_when_told_not_to_retry_then_it_stops_at_once(
    engine_server: Server,
) -> None:
    """One attempt for what can never fit, and one for a wait that is longer than a minute."""
    pool = {"policy": "ledger", "replicas": [{"url": engine_server.url, "kv_tokens": 9_000}]}
    settings = {"routes": [{"output_tokens_max": "8k"}]}
    async with (
        session() as plain,
        gateway(settings=settings, pool={**pool, "queue": {"items": 20, "wait": "10m"}}) as server,
        client_of(server) as client,
    ):
        with pytest.raises(openai.BadRequestError) as never:
            await complete(client, 5, content="w " * 60_000)
        assert never.value.code == "request_too_large"
        assert metric(server.admin_url, "tokenweir_refusals_total") == 1
        # A full engine and a long line before it: more than a minute to wait.
        waiting = [
            asyncio.create_task(
                post(plain, server.url + CHAT, chat(max_tokens=8_000, ignore_eos=True))
            )
            for _ in range(21)
        ]
        await eventually(lambda: ledger_of(server)["queued"] == 20)
        with pytest.raises(openai.RateLimitError) as hopeless:
            await complete(client, 5_000)
        assert metric(server.admin_url, "tokenweir_refusals_total") == 2
        headers = hopeless.value.response.headers
        assert headers["x-should-retry"] == "false"
        assert "retry-after" not in headers
        for task in waiting:
            task.cancel()


@pytest.mark.case("CASE-G5")
@pytest.mark.parametrize(
    ("headers", "calls"),
    [
        ("retry-after-ms: 300\r\nretry-after: 1\r\n", 3),
        ("retry-after: 200\r\n", 1),
        ("x-should-retry: false\r\nretry-after-ms: 10\r\n", 1),
    ],
)
async def test_openai_client_when_a_provider_refuses_then_its_advice_arrives_unchanged(
    headers: str, calls: int
) -> None:
    """Up to 120 s obeyed, above it no retry, and the flag decides alone: all through us."""

    async def script(call: Call) -> None:
        body = b'{"error":{"message":"slow down"}}'
        head = f"HTTP/1.1 429 X\r\n{headers}content-type: application/json\r\n"
        await call.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async with (
        scripted(script) as upstream,
        gateway(upstream.url) as server,
        client_of(server) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            await complete(client, 5)
        assert len(upstream.calls) == calls


async def test_openai_client_when_streaming_then_it_reads_our_stream_and_our_error_event() -> None:
    """The client parses what we pass on, and raises what we add when the upstream dies."""

    async def dies(call: Call) -> None:
        await call.start()
        await call.chunk(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        await asyncio.sleep(0.1)
        call.cut()

    async with (
        scripted(stream(4)) as upstream,
        gateway(upstream.url) as server,
        client_of(server) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "hello"}]
        streaming = await client.chat.completions.create(
            model="m", messages=messages, max_tokens=4, stream=True
        )
        texts = [chunk.choices[0].delta.content async for chunk in streaming]
        assert texts == ["x"] * 4
        upstream.script = dies
        streaming = await client.chat.completions.create(
            model="m", messages=messages, max_tokens=4, stream=True
        )
        with pytest.raises(openai.APIError, match="broke the connection"):
            async for _ in streaming:
                pass


async def test_answer_when_busy_upstream_recovers_then_plain_body_passes() -> None:
    """A body that is not streamed passes with its length and content type."""

    async def script(call: Call) -> None:
        await answer(call, b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}')

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert got.status == 200
        assert int(got.headers["content-length"]) == len(got.body)
        assert metric(server.admin_url, "tokenweir_output_tokens_total") == 4
