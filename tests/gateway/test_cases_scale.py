"""Bad telemetry, a thousand at once, and a hung engine: conformance cases with real processes."""

import asyncio
import resource
import time
from typing import Any

import aiohttp
import pytest

from tests.gateway.clients import CHAT, TEXT, chat, post, session
from tests.gateway.processes import engine, gateway, ledger_of, metric, started
from tests.gateway.scripted import Call, ScriptedUpstream, event, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

# --- telemetry that lies --------------------------------------------------------------------------

KV_TOKENS = 4_000
PROMPT_TOKENS = 300
OUTPUT_TOKENS = 100
GAP_S = 0.05
# What the policy adds for a newcomer, and the part of the pool that may be filled.
COST_TOKENS = PROMPT_TOKENS + OUTPUT_TOKENS
USABLE_TOKENS = int(KV_TOKENS * 0.95)
# The case's own words: 5 s stale, then 18 s of zeros. Before them, 2 s of the truth.
TRUE_S, STALE_S, ZERO_S = 2.0, 5.0, 18.0


class LyingEngine:
    """Streams slowly, counts the KV tokens it really holds, and tells lies about them."""

    def __init__(self) -> None:
        self.held_tokens = 0
        self.at_arrival: list[int] = []
        self.start_s = time.monotonic()

    async def script(self, call: Call) -> None:
        """Hold the prompt, then a token more with each chunk; let go at the end."""
        self.at_arrival.append(self.held_tokens)
        held = PROMPT_TOKENS
        self.held_tokens += held
        try:
            await call.start()
            for index in range(OUTPUT_TOKENS):
                if call.aborted_s is not None:
                    return
                await call.chunk(event(finish="length" if index == OUTPUT_TOKENS - 1 else None))
                held += 1
                self.held_tokens += 1
                await asyncio.sleep(GAP_S)
            await call.chunk(b"data: [DONE]\n\n")
            await call.end()
        finally:
            self.held_tokens -= held

    def page(self) -> str:
        """The truth at first, then the page of the start for ever, then zeros."""
        age_s = time.monotonic() - self.start_s
        is_true = age_s < TRUE_S
        used = self.held_tokens / KV_TOKENS if is_true else 0.02 if age_s < TRUE_S + STALE_S else 0
        return (
            f'vllm:kv_cache_usage_perc{{engine="0"}} {used}\n'
            f'vllm:num_requests_running{{engine="0"}} {1 if used else 0}\n'
            f'vllm:cache_config_info{{kv_cache_size_tokens="{KV_TOKENS}"}} 1\n'
        )


@pytest.mark.case("CASE-F1")
@pytest.mark.slow
async def test_metrics_when_stale_then_zero_then_admission_stays_bounded_by_our_own_count() -> None:
    """At no arrival does the engine hold more than our own count allows, whatever its page says.

    Under the policy that believes telemetry most.
    """
    lying = LyingEngine()
    end_s = time.monotonic() + TRUE_S + STALE_S + ZERO_S
    async with (
        session() as client,
        scripted(lying.script) as upstream,
    ):
        upstream.metrics = lying.page
        async with gateway(upstream.url, pool={"policy": "token_amort"}) as server:
            lying.start_s = time.monotonic()
            body = {
                "model": "m",
                "prompt": [7] * PROMPT_TOKENS,
                "max_tokens": OUTPUT_TOKENS,
                "stream": True,
            }

            async def ask() -> None:
                while time.monotonic() < end_s:
                    got = await post(client, server.url + TEXT, body)
                    if got.status != 200:
                        assert got.status == 429
                        await asyncio.sleep(0.25)

            await asyncio.gather(*(ask() for _ in range(20)))
        # Progress is reported ten times a second: that much a newcomer may not know of.
        unreported = 20 * round(0.2 / GAP_S)
        assert max(lying.at_arrival) + COST_TOKENS <= USABLE_TOKENS + unreported
        # And it was put to use: the pool was filled, before the lies and during them.
        assert max(lying.at_arrival) > USABLE_TOKENS / 2
        assert len(lying.at_arrival) > 40


# --- many at once ---------------------------------------------------------------------------------


@pytest.fixture
def many_files() -> None:
    """A thousand connections of the client's own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.case("CASE-H2")
@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
async def test_requests_when_1000_come_at_once_then_none_is_lost() -> None:
    """Every one is answered in full, from an engine that runs a tenth of them at a time."""
    pool = {"policy": "token_amort", "queue": {"items": 1_000, "wait": "60s"}}
    async with (
        started(engine(profile="article", speed=4)) as behind,
        session() as client,
        gateway(behind.url, pool=pool) as server,
    ):

        async def ask(index: int) -> tuple[int, bool]:
            is_streamed = bool(index % 2)
            body = chat(max_tokens=20, ignore_eos=True, stream=is_streamed)
            got = await post(client, server.url + CHAT, body)
            ending = b"[DONE]\n\n" if is_streamed else b"}"
            return got.status, got.body.endswith(ending)

        answers = await asyncio.gather(*(ask(index) for index in range(1_000)))
        assert answers == [(200, True)] * 1_000
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0)
        assert metric(server.admin_url, "tokenweir_output_tokens_total") == 20_000
        assert "Traceback" not in server.log()


# --- one hung engine ------------------------------------------------------------------------------


async def timed(client: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, float]:
    """Status and duration of a request, in seconds."""
    start_s = time.monotonic()
    got = await post(client, url, body)
    return got.status, time.monotonic() - start_s


async def hung() -> ScriptedUpstream:
    """An engine that accepts connections and never answers anything."""
    upstream = ScriptedUpstream(stream())
    upstream.is_hung = True
    await upstream.start()
    return upstream


@pytest.mark.case("CASE-H3")
@pytest.mark.slow
async def test_replica_when_hung_then_traffic_to_others_is_unaffected() -> None:
    """Requests that meet the healthy one take as long as without the other; soon all do."""
    timeouts = {"first_byte": "3s"}
    # Under this policy every other request would go to the hung replica while it is believed in.
    pool = {"policy": "concurrency", "concurrency": 100, "timeouts": timeouts}
    async with session() as client, scripted(stream(10, gap_s=0.02)) as healthy:
        body = chat(max_tokens=10, stream=True)
        async with gateway(healthy.url, pool=pool) as server:
            solo = [await timed(client, server.url + CHAT, body) for _ in range(20)]
        solo_s = max(seconds for _, seconds in solo)
        stuck = await hung()
        try:
            async with gateway(healthy.url, stuck.url, pool=pool) as server:
                url = server.url + CHAT
                first = await asyncio.gather(*(timed(client, url, body) for _ in range(40)))
                served = [seconds for status, seconds in first if status == 200]
                assert len(served) >= 15
                assert max(served) <= solo_s + 0.5
                assert {status for status, _ in first} <= {200, 504}
                await eventually(
                    lambda: metric(server.admin_url, "tokenweir_replica_healthy") == 1,
                    within_s=10,
                    every_s=0.1,
                )
                later = await asyncio.gather(*(timed(client, url, body) for _ in range(40)))
                assert {status for status, _ in later} == {200}
                assert max(seconds for _, seconds in later) <= solo_s + 0.5
                await eventually(lambda: ledger_of(server)["used_tokens"] == 0)
        finally:
            await stuck.stop()
