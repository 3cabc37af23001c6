"""What a request holds comes back: conformance cases against a real gateway and engine."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.gateway.clients import CHAT, chat, post, session
from tests.gateway.processes import Server, engine, gateway, ledger_of, metric, started
from tests.gateway.scripted import scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

# The case's own word. Shorter would hide a leak of a permit a minute.
SATURATION_S = 60
DISCONNECTS = 1_000
AT_ONCE = 50


@pytest.fixture
async def engine_server() -> AsyncIterator[Server]:
    """The article's engine: 400 tokens in a step of 10 ms, 90,000 KV tokens."""
    async with started(engine(profile="article", speed=1)) as server:
        yield server


def long_chat(tokens: int = 2_000, **members: Any) -> dict[str, Any]:
    """A request whose answer takes ``tokens`` steps of 10 ms."""
    return chat(max_tokens=tokens, ignore_eos=True, **members)


async def leave_after_first_chunk(client: aiohttp.ClientSession, url: str) -> None:
    """Read a little of a stream and close the connection."""
    async with client.post(url, json=long_chat(stream=True)) as response:
        assert response.status == 200
        await response.content.readany()
        response.close()


@pytest.mark.case("CASE-A1")
@pytest.mark.slow
async def test_stream_when_1000_clients_leave_then_the_gauge_is_zero_within_a_second(
    engine_server: Server,
) -> None:
    """Fifty at a time, each batch is back within 1 s, and at the end the sum is exactly zero."""
    async with session() as client, gateway(engine_server.url) as server:
        url = server.url + CHAT
        for _ in range(DISCONNECTS // AT_ONCE):
            await asyncio.gather(*(leave_after_first_chunk(client, url) for _ in range(AT_ONCE)))
            await eventually(lambda: ledger_of(server)["in_flight"] == 0, within_s=1)
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0, within_s=1)
        pool = ledger_of(server)
        assert (pool["in_flight"], pool["reserved_tokens"], pool["queued"]) == (0, 0, 0)
        name = "tokenweir_settles_total"
        assert metric(server.admin_url, name, outcome="cancelled") == DISCONNECTS
        assert metric(server.admin_url, name) == DISCONNECTS
        await eventually(lambda: running_on(engine_server) == 0, within_s=1)


def running_on(server: Server) -> float:
    """Requests that an engine has, in its batch or its queue."""
    running = metric(server.url, "vllm:num_requests_running")
    return running + metric(server.url, "vllm:num_requests_waiting")


@pytest.mark.case("CASE-A7")
async def test_client_when_it_leaves_the_queue_then_gone_within_100_ms_and_uncharged(
    engine_server: Server,
) -> None:
    """Removed, never dispatched, no permit handed to it, nothing charged."""
    pool = {"policy": "concurrency", "concurrency": 1, "queue": {"wait": "30s"}}
    async with session() as client, gateway(engine_server.url, pool=pool) as server:
        url = server.url + CHAT
        running = asyncio.create_task(post(client, url, long_chat(300, stream=True)))
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        queued = asyncio.create_task(post(client, url, long_chat(10, stream=True)))
        await eventually(lambda: ledger_of(server)["queued"] == 1)
        queued.cancel()
        # One look at the ledger takes some milliseconds of these 100.
        await eventually(lambda: ledger_of(server)["queued"] == 0, within_s=0.1, every_s=0.005)
        assert (await running).status == 200
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        assert metric(server.admin_url, "tokenweir_settles_total") == 1
        assert metric(server.admin_url, "tokenweir_output_tokens_total") == 300
        assert metric(engine_server.url, "vllm:generation_tokens_total") == 300


@pytest.mark.case("CASE-A8")
async def test_permit_when_headers_are_out_then_held_until_the_body_ends() -> None:
    """With two slow streams under way a third is never forwarded, until one of them ends."""
    async with session() as client, scripted(stream(20, gap_s=0.05)) as upstream:
        pool = {"policy": "concurrency", "concurrency": 2, "queue": {"wait": "30s"}}
        async with gateway(upstream.url, pool=pool) as server:
            url = server.url + CHAT
            body = chat(max_tokens=20, stream=True)
            first = await client.post(url, json=body)
            second = await client.post(url, json=body)
            third = asyncio.create_task(post(client, url, body))
            await eventually(lambda: ledger_of(server)["queued"] == 1)
            assert len(upstream.calls) == 2
            await first.read()
            await second.read()
            assert (await third).status == 200
            assert len(upstream.calls) == 3
            assert upstream.running_max == 2


@pytest.mark.case("CASE-A9")
@pytest.mark.slow
async def test_cap_when_saturated_for_a_minute_then_never_exceeded(engine_server: Server) -> None:
    """Three times as many clients as permits, streamed and not, for 60 s."""
    cap, seen = 8, []
    pool = {"policy": "concurrency", "concurrency": cap}
    async with session() as client, gateway(engine_server.url, pool=pool) as server:
        url, end_s = server.url + CHAT, time.monotonic() + SATURATION_S

        async def ask(index: int) -> int:
            answered = 0
            while time.monotonic() < end_s:
                body = long_chat(20 + index, stream=bool(index % 2))
                got = await post(client, url, body)
                assert got.status in {200, 429}
                answered += got.status == 200
            return answered

        async def look() -> None:
            while time.monotonic() < end_s:
                seen.append(await asyncio.to_thread(running_on, engine_server))
                await asyncio.sleep(0.1)

        served = await asyncio.gather(look(), *(ask(index) for index in range(3 * cap)))
        assert max(seen) <= cap
        # It truly was saturated: the median look found the engine full.
        assert sorted(seen)[len(seen) // 2] >= cap - 1
        assert sum(count or 0 for count in served) > 100
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0)


@pytest.mark.case("CASE-A10")
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_engine_when_the_client_leaves_then_its_generation_is_aborted_within_a_second(
    engine_server: Server, *, is_streamed: bool
) -> None:
    """The engine itself records the abort, streamed or not."""
    async with session() as client, gateway(engine_server.url) as server:
        asking = asyncio.create_task(
            post(client, server.url + CHAT, long_chat(3_000, stream=is_streamed))
        )
        await eventually(lambda: running_on(engine_server) == 1)
        await asyncio.sleep(0.2)
        asking.cancel()
        await eventually(
            lambda: (
                metric(engine_server.url, "vllm:request_success_total", finished_reason="abort")
                == 1
            ),
            within_s=1,
        )
        assert running_on(engine_server) == 0
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0, within_s=1)
        assert metric(server.admin_url, "tokenweir_settles_total", outcome="cancelled") == 1
