"""What a client is told that was refused, and what it finds when it comes back: a real gateway."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

import aiohttp
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


async def teach_rate(client: aiohttp.ClientSession, server: Server) -> None:
    """Ask for more than there is for as long as it takes to see what the pool can do."""
    until_s = time.monotonic() + 4.0
    index = iter(range(100_000))

    async def insist() -> None:
        while time.monotonic() < until_s:
            body = chat(f"hello {next(index)}", max_tokens=20, ignore_eos=True)
            if (await post(client, server.url + CHAT, body)).status != 200:
                await asyncio.sleep(0.3)

    await asyncio.gather(insist(), insist())
    await eventually(lambda: ledger_of(server)["rate_tokens_per_s"] is not None)


@contextlib.asynccontextmanager
async def held(
    client: aiohttp.ClientSession, server: Server, *, tokens: int = 300
) -> AsyncIterator[None]:
    """Keep the only place of a pool taken, and be seen to need it for so many tokens."""
    body = chat(max_tokens=tokens, ignore_eos=True, stream=True)
    task = asyncio.create_task(post(client, server.url + CHAT, body))
    try:
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        yield
    finally:
        task.cancel()


async def test_refusals_when_the_rate_is_known_then_have_tickets_and_times_of_their_own(
    engine_server: Server,
) -> None:
    """Equal requests that are refused together are told to come back one after the other."""
    async with session() as client, gateway(engine_server.url, pool=ONE) as server:
        await teach_rate(client, server)
        async with held(client, server):
            url = server.url + CHAT
            refused = [await post(client, url, chat("again", max_tokens=20)) for _ in range(3)]
        assert {got.status for got in refused} == {429}
        times = [int(got.headers["retry-after-ms"]) for got in refused]
        assert times == sorted(set(times))
        assert len({got.headers["x-tokenweir-ticket"] for got in refused}) == 3


@pytest.mark.parametrize("shares_key", [True, False])
async def test_ticket_when_gateways_share_a_key_then_it_counts_at_the_other_one_too(
    engine_server: Server, monkeypatch: pytest.MonkeyPatch, *, shares_key: bool
) -> None:
    """Whoever was told to come back now goes before its tenant's first attempts there as well."""
    monkeypatch.setenv("TICKET_KEY", secrets.token_hex(32))
    shared = {"tickets": {"keys": [{"env": "TICKET_KEY"}]}}
    waits = {"policy": "concurrency", "concurrency": 1}
    # Those of P1 are told to come back behind all whom it took to learn the rate.
    calm = {"x-tokenweir-class": "P2"}
    order: list[str] = []
    async with (
        session() as client,
        # The faster it is, the sooner it lets come back.
        started(engine(profile="article", speed=20)) as fast,
        gateway(fast.url, pool=ONE, settings=shared) as one,
        gateway(engine_server.url, pool=waits, settings=shared if shares_key else None) as two,
    ):

        async def ask(name: str, headers: dict[str, str]) -> None:
            headers = {**calm, **headers}
            got = await post(client, two.url + CHAT, chat(name, max_tokens=20), headers=headers)
            assert got.status == 200
            order.append(name)

        await teach_rate(client, one)
        async with held(client, two, tokens=3_000):
            first = asyncio.create_task(ask("first", {}))
            await eventually(lambda: ledger_of(two)["queued"] == 1)
            async with held(client, one, tokens=1_000):
                body = chat("again", max_tokens=20)
                refused = await post(client, one.url + CHAT, body, headers=calm)
            assert refused.status == 429
            await asyncio.sleep(int(refused.headers["retry-after-ms"]) / 1_000 + 0.05)
            ticket = {"x-tokenweir-ticket": refused.headers["x-tokenweir-ticket"]}
            again = asyncio.create_task(ask("again", {**ticket, "x-tokenweir-attempt": "1"}))
            await eventually(lambda: ledger_of(two)["queued"] == 2)
        await asyncio.gather(first, again)
    assert order == (["again", "first"] if shares_key else ["first", "again"])
