"""What an upstream does wrong ends in an honest answer, and in a ledger that reads zero."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.gateway.clients import CHAT, chat, post, session
from tests.gateway.processes import Server, gateway, ledger_of, metric
from tests.gateway.scripted import Call, answer, event, hang, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

FREE = {"first_byte": "500ms", "idle": "500ms", "total": "700ms", "connect": "1s"}


def is_empty(server: Server) -> bool:
    """Whether nothing is held, reserved or draining."""
    pool = ledger_of(server)
    return pool["used_tokens"] == 0 and pool["in_flight"] == 0 and pool["queued"] == 0


async def cut_stream(client: aiohttp.ClientSession, server: Server) -> bytes:
    """What a client gets of a stream that is cut; a clean end is a failure."""
    body = chat(max_tokens=9, stream=True)
    parts = bytearray()
    async with client.post(server.url + CHAT, json=body) as response:
        assert response.status == 200
        try:
            async for part in response.content.iter_any():
                parts += part
        except aiohttp.ClientPayloadError:
            return bytes(parts)
    raise AssertionError("the stream ended as if it were complete")


async def test_upstream_when_unreachable_then_503_says_when_to_come_back() -> None:
    """Nothing listens there: not a 500, and not a hang."""
    async with session() as client, gateway("http://127.0.0.1:9") as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert got.status == 503
        assert got.code in {"upstream_unreachable", "no_healthy_replica"}
        assert 1 <= int(got.headers["retry-after"]) <= 60
        assert got.headers["x-should-retry"] == "true"
        assert is_empty(server)


async def test_upstream_when_it_dies_between_looks_then_503_unreachable_and_back_by_itself() -> (
    None
):
    """The first request finds out, is answered 503, and nothing needs a restart."""
    async with session() as client, scripted(stream()) as upstream:
        async with gateway(upstream.url, pool={"scrape": {"interval": "60s"}}) as server:
            assert (await post(client, server.url + CHAT, chat(max_tokens=5))).status == 200
            port = int(upstream.url.rsplit(":", 1)[1])
            await upstream.stop()
            got = await post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
            assert (got.status, got.code) == (503, "upstream_unreachable")
            assert int(got.headers["retry-after"]) >= 1
            assert await asyncio.to_thread(is_empty, server)
        async with gateway(upstream.url) as server:
            got = await post(client, server.url + CHAT, chat(max_tokens=5))
            assert got.status == 503
            await upstream.start(port)
            await eventually(
                lambda: metric(server.admin_url, "tokenweir_replica_healthy") == 1, every_s=0.1
            )
            assert (await post(client, server.url + CHAT, chat(max_tokens=5))).status == 200


async def test_replica_when_it_refuses_then_another_serves_the_same_request() -> None:
    """One attempt more before the first byte, on a replica that lives."""
    async with session() as client, scripted(stream()) as dying, scripted(stream()) as living:
        scrape = {"scrape": {"interval": "60s"}}
        async with gateway(dying.url, living.url, pool=scrape) as server:
            await dying.stop()
            answers = [
                await post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
                for _ in range(6)
            ]
            assert {got.status for got in answers} == {200}
            assert len(living.calls) == 6
            assert await asyncio.to_thread(is_empty, server)


async def test_upstream_when_busy_once_then_asked_again_and_served() -> None:
    """An engine's own 503 is a signal, not an answer."""

    async def script(call: Call) -> None:
        if call.number == 0:
            await answer(call, b'{"error":{"message":"busy"}}', status=503)
        else:
            await stream()(call)

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
        assert got.status == 200
        assert got.events[-1] == "[DONE]"


async def test_upstream_when_it_stays_busy_then_429_engine_busy() -> None:
    """Its client is told to come back, in the words of overload."""

    async def script(call: Call) -> None:
        await answer(call, b'{"error":{"message":"busy"}}', status=503)

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert (got.status, got.code) == (429, "engine_busy")
        assert int(got.headers["retry-after"]) >= 1
        assert len(upstream.calls) == 2
        assert await asyncio.to_thread(is_empty, server)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429])
async def test_upstream_when_it_refuses_the_request_then_its_answer_passes_untouched(
    status: int,
) -> None:
    """The engine knows best what is wrong with a request; nothing is charged."""
    body = b'{"error": {"message": "max_tokens is too large",  "code": 400}}'

    async def script(call: Call) -> None:
        await answer(call, body, status=status)

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
        assert (got.status, got.body) == (status, body)
        assert await asyncio.to_thread(is_empty, server)
        assert metric(server.admin_url, "tokenweir_output_tokens_total") == 0


@pytest.mark.parametrize("garbage", [b"", b"HTTP/1.1 2", b"\x00\x01\x02 nonsense\r\n\r\n"])
async def test_upstream_when_it_breaks_the_protocol_then_502(garbage: bytes) -> None:
    """Whatever it was, it was no answer; asked once more, then refused."""

    async def script(call: Call) -> None:
        await call.send(garbage)
        call.cut()

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert (got.status, got.code) == (502, "upstream_broken")
        assert len(upstream.calls) == 2
        await eventually(lambda: is_empty(server))


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_upstream_when_it_never_answers_then_504_and_the_next_is_served(
    *, is_streamed: bool
) -> None:
    """A permit held by a dead wait would lock the pool; recovery needs no reset."""
    async with session() as client, scripted(hang) as upstream:
        pool = {"policy": "concurrency", "concurrency": 2, "timeouts": FREE, "queue": {"items": 0}}
        async with gateway(upstream.url, pool=pool) as server:
            url = server.url + CHAT
            body = chat(max_tokens=5, stream=is_streamed)
            late = await asyncio.gather(*(post(client, url, body) for _ in range(2)))
            assert [(got.status, got.code) for got in late] == [(504, "upstream_timeout")] * 2
            await eventually(lambda: is_empty(server))
            assert len(upstream.aborted) == 2
            upstream.script = stream()
            assert (await post(client, url, chat(max_tokens=5, stream=True))).status == 200


@pytest.mark.case("CASE-A2")
async def test_upstream_when_it_fails_up_to_the_limit_then_recovery_needs_no_reset() -> None:
    """Timeouts, 502 and 504 in turn, more often than there are permits; then all is served."""
    scripts = [hang, None, None]

    async def script(call: Call) -> None:
        kind = call.number % len(scripts)
        if kind == 0:
            await hang(call)
        elif kind == 1:
            await answer(call, b"{}", status=502)
        else:
            await answer(call, b"{}", status=504)

    async with session() as client, scripted(script) as upstream:
        pool = {"policy": "concurrency", "concurrency": 3, "timeouts": FREE}
        async with gateway(upstream.url, pool=pool) as server:
            url = server.url + CHAT
            failed = await asyncio.gather(
                *(post(client, url, chat(max_tokens=5, stream=True)) for _ in range(12))
            )
            assert {got.status for got in failed} <= {502, 504}
            upstream.script = stream()
            served = await asyncio.gather(
                *(post(client, url, chat(max_tokens=5, stream=True)) for _ in range(3))
            )
            assert [got.status for got in served] == [200] * 3
            await eventually(lambda: is_empty(server))


async def test_stream_when_the_upstream_dies_in_the_middle_then_it_ends_with_an_error_event() -> (
    None
):
    """The client sees an error and a cut connection, never a clean end."""

    async def script(call: Call) -> None:
        await call.start()
        for _ in range(3):
            await call.chunk(event())
        await call.chunk(b'data: {"id":"c","cho')
        await asyncio.sleep(0.05)
        call.cut()

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        tail = (await cut_stream(client, server)).split(b"event: error\ndata: ")
        assert len(tail) == 2
        assert json.loads(tail[1])["error"]["code"] == "upstream_broken"
        assert tail[0].endswith(b"\n\n")
        await eventually(lambda: is_empty(server))
        assert metric(server.admin_url, "tokenweir_output_tokens_total") == 3


async def test_stream_when_the_upstream_falls_silent_then_it_ends_with_a_timeout_event() -> None:
    """Silence between two chunks has a bound."""

    async def script(call: Call) -> None:
        await call.start()
        await call.chunk(event())
        await call.gone()

    async with (
        session() as client,
        scripted(script) as upstream,
        gateway(upstream.url, pool={"timeouts": FREE}) as server,
    ):
        assert b'"code":"upstream_timeout"' in await cut_stream(client, server)
        await eventually(lambda: is_empty(server))
        await eventually(lambda: len(upstream.aborted) == 1)


async def test_upstream_when_its_error_is_in_the_stream_then_it_passes_and_is_settled() -> None:
    """What the engine says of its own failure is not for us to reword."""
    failure = b'data: {"error":{"message":"out of memory","code":500}}\n\ndata: [DONE]\n\n'

    async def script(call: Call) -> None:
        await call.start()
        await call.chunk(event())
        await call.chunk(failure)
        await call.end()

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=9, stream=True))
        assert got.body.endswith(failure)
        await eventually(lambda: is_empty(server))
        assert metric(server.admin_url, "tokenweir_settles_total", outcome="error") == 1


async def test_pages_when_the_metrics_are_garbage_then_requests_are_served() -> None:
    """Telemetry that cannot be read is no reason to stop."""
    async with session() as client, scripted(stream()) as upstream:
        upstream.metrics = lambda: "vllm:kv_cache_usage_perc{} one\n\x00<html>"
        async with gateway(upstream.url) as server:
            got = await post(client, server.url + CHAT, chat(max_tokens=9, stream=True))
            assert got.status == 200
            assert "going on without telemetry" in server.log()
            assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 600 X\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 999 X\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 099 X\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 X\r\nx-a: b\x01c\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 X\r\nx-a: b\x7fc\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 X\r\nx(a: b\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
async def test_head_when_it_cannot_be_passed_on_then_502_and_logged(head: bytes) -> None:
    """What no client could read is the engine's fault, not a bug of ours."""

    async def script(call: Call) -> None:
        await call.send(head)
        call.is_ended = True

    async with session() as client, scripted(script) as upstream, gateway(upstream.url) as server:
        got = await post(client, server.url + CHAT, chat(max_tokens=5))
        assert (got.status, got.code) == (502, "upstream_broken")
        await eventually(lambda: f"{upstream.url} " in server.log().partition("curl")[2])
        assert "Traceback" not in server.log()
        await eventually(lambda: is_empty(server))


async def test_size_when_wrong_once_and_never_told_again_then_nobody_is_refused_for_good() -> None:
    """A size that is stale is a reason to come back later, and the right one is believed."""
    size = 'vllm:cache_config_info{kv_cache_size_tokens="%d"} 1\nvllm:kv_cache_usage_perc 0\n'
    pages = [size % 1]
    pool = {"scrape": {"interval": "100ms"}}
    async with session() as client, scripted(stream()) as upstream:
        upstream.metrics = lambda: pages[-1]
        async with gateway(upstream.url, pool=pool) as server:
            got = await post(client, server.url + CHAT, chat(max_tokens=5))
            assert (got.status, got.code) == (400, "request_too_large")
            pages.append("")
            asked = upstream.pages_asked
            await eventually(lambda: upstream.pages_asked > asked + 4)
            got = await post(client, server.url + CHAT, chat(max_tokens=5))
            assert (got.status, got.code) == (429, "overload_kv")
            assert int(got.headers["retry-after"]) >= 1
            pages.append(size % 16_000)
            asked = upstream.pages_asked
            await eventually(lambda: upstream.pages_asked > asked + 6)
            assert (await post(client, server.url + CHAT, chat(max_tokens=5))).status == 200


async def test_client_when_it_takes_nothing_of_its_answer_then_cut_after_its_own_limit() -> None:
    """The limit of a client counts once an answer has begun, not the one of the engine."""

    async def flood(call: Call) -> None:
        await call.start()
        while call.aborted_s is None:
            await call.chunk(event("x" * 10_000))

    settings = {"limits": {"client_stall": "500ms"}}
    pool = {"timeouts": {"idle": "60s"}}
    async with (
        scripted(flood) as upstream,
        gateway(upstream.url, settings=settings, pool=pool) as server,
    ):
        address = urlsplit(server.url)
        body = json.dumps(chat(max_tokens=9, stream=True)).encode()
        with socket.create_connection((address.hostname, address.port)) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            await eventually(lambda: ledger_of(server)["in_flight"] == 1)
            await eventually(lambda: is_empty(server), within_s=10)
