"""What a client is told that was refused, and what it finds when it comes back: a real gateway."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.gateway.clients import CHAT, chat, post, session
from tests.gateway.processes import Server, engine, gateway, ledger_of, started
from tests.polling import eventually

pytestmark = pytest.mark.integration

ONE = {"policy": "concurrency", "concurrency": 1, "queue": {"items": 0}}


@pytest.fixture
async def engine_server() -> AsyncIterator[Server]:
    """An engine that produces 100 tokens a second per stream."""
    async with started(engine(profile="article", speed=1)) as server:
        yield server


async def test_attempt_when_the_client_says_it_is_the_fourth_then_is_told_not_to_retry(
    engine_server: Server,
) -> None:
    """As the common libraries number their attempts; the third is still served."""
    async with session() as client, gateway(engine_server.url) as server:
        url = server.url + CHAT
        third = await post(client, url, chat(), headers={"x-stainless-retry-count": "2"})
        assert third.status == 200
        fourth = await post(client, url, chat(), headers={"x-stainless-retry-count": "3"})
        assert (fourth.status, fourth.code) == (429, "attempts_exhausted")
        assert fourth.headers["x-should-retry"] == "false"
        assert "retry-after" not in fourth.headers


async def test_refusals_when_the_rate_is_known_then_have_tickets_and_times_of_their_own(
    engine_server: Server,
) -> None:
    """Equal requests that are refused together are told to come back one after the other."""
    async with session() as client, gateway(engine_server.url, pool=ONE) as server:
        url = server.url + CHAT
        until_s = time.monotonic() + 4.0
        index = iter(range(100_000))

        async def insist() -> None:
            while time.monotonic() < until_s:
                body = chat(f"hello {next(index)}", max_tokens=20, ignore_eos=True)
                if (await post(client, url, body)).status != 200:
                    await asyncio.sleep(0.3)

        await asyncio.gather(insist(), insist())
        await eventually(lambda: ledger_of(server)["rate_tokens_per_s"] is not None)
        held = asyncio.create_task(
            post(client, url, chat(max_tokens=300, ignore_eos=True, stream=True))
        )
        await eventually(lambda: ledger_of(server)["replicas"][0]["in_flight"] == 1)
        refused = [await post(client, url, chat("again", max_tokens=20)) for _ in range(3)]
        assert {got.status for got in refused} == {429}
        times = [int(got.headers["retry-after-ms"]) for got in refused]
        assert times == sorted(set(times))
        assert len({got.headers["x-tokenweir-ticket"] for got in refused}) == 3
        assert (await held).status == 200
