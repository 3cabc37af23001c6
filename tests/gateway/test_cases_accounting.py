"""What a request costs: conformance cases against a real gateway and engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.clients import CHAT, TEXT, chat, post, session
from tests.gateway.processes import Server, engine, gateway, ledger_of, metric, started
from tests.gateway.scripted import scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def engine_server() -> AsyncIterator[Server]:
    """A fast engine."""
    async with started(engine(profile="article", speed=20)) as server:
        yield server


def charged(server: Server) -> tuple[float, float]:
    """Prompt and output tokens of all settled requests."""
    url = server.admin_url
    prompt = metric(url, "tokenweir_prompt_tokens_total")
    return prompt, metric(url, "tokenweir_output_tokens_total")


@pytest.mark.case("CASE-B4")
@pytest.mark.parametrize("policy", ["ledger", "token_amort"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_output_maximum_when_a_thousand_million_then_clamped_and_shown(
    engine_server: Server, policy: str, name: str
) -> None:
    """The engine gets the route's maximum, the ledger reserves no more, the client is told."""
    settings = {"routes": [{"output_tokens_max": 64}]}
    async with (
        session() as client,
        gateway(engine_server.url, settings=settings, pool={"policy": policy}) as server,
    ):
        body = {**chat(ignore_eos=True), name: 10**9}
        got = await post(client, server.url + CHAT, body)
        assert got.status == 200
        assert got.members["usage"]["completion_tokens"] == 64
        assert got.headers["x-tokenweir-degraded"] == f"{name}=64"
        assert got.headers["x-tokenweir-decision"] == "degrade"
        assert int(got.headers["x-tokenweir-reserved-tokens"]) <= 64 + 16
        huge = await post(client, server.url + CHAT, {**chat(), name: 10**300, "n": 10**9})
        assert (huge.status, huge.code) == (400, "bad_request")
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0)


@pytest.mark.case("CASE-C1")
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_charge_when_streamed_or_not_then_the_same(engine_server: Server, path: str) -> None:
    """Neither twice, nor nothing, nor an estimate: what the engine counted, both ways."""
    body: dict[str, Any] = {"max_tokens": 90, "emulated_output_tokens": 37}
    body |= chat("count me " * 50) if path == CHAT else {"prompt": "count me " * 50}
    async with session() as client, gateway(engine_server.url) as server:
        whole = await post(client, server.url + path, body)
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        plain = charged(server)
        usage = whole.members["usage"]
        assert plain == (usage["prompt_tokens"], usage["completion_tokens"]) == (plain[0], 37)
        streams = [
            await post(client, server.url + path, {**body, "stream": True, **options})
            for options in ({}, {"stream_options": {"include_usage": True}})
        ]
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        assert charged(server) == (3 * plain[0], 3 * plain[1])
        told = json.loads(streams[1].events[-2])["usage"]
        assert (told["prompt_tokens"], told["completion_tokens"]) == plain


async def test_charge_when_the_upstream_tells_no_usage_then_chunks_are_counted() -> None:
    """A provider that ignores the wish for usage is still charged for."""
    async with (
        session() as client,
        scripted(stream(7, has_usage=False)) as upstream,
        gateway(upstream.url) as server,
    ):
        await post(client, server.url + CHAT, chat(max_tokens=50, stream=True))
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        prompt, output = charged(server)
        assert output == 7
        assert prompt > 0


@pytest.mark.case("CASE-C6")
async def test_usage_when_only_we_asked_then_the_client_does_not_see_it(
    engine_server: Server,
) -> None:
    """The stream is the one that the engine sends unasked, and the account is still exact."""
    body = chat(max_tokens=90, emulated_output_tokens=12, stream=True)
    async with session() as client, gateway(engine_server.url) as server:
        bare = await post(client, engine_server.url + CHAT, body)
        got = await post(client, server.url + CHAT, body)
        assert got.status == 200
        assert [delta_of(event) for event in got.events] == [delta_of(e) for e in bare.events]
        assert not any('"choices":[]' in event.replace(" ", "") for event in got.events)
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        assert charged(server)[1] == 12


@pytest.mark.case("CASE-C6")
async def test_usage_when_we_ask_for_it_then_the_upstream_gets_the_wish() -> None:
    """It is written into the body; a client's own wish is left alone."""
    async with (
        session() as client,
        scripted(stream()) as upstream,
        gateway(upstream.url) as server,
    ):
        plain = chat(max_tokens=5, stream=True)
        asked = {**plain, "stream_options": {"include_usage": True}}
        hidden = await post(client, server.url + CHAT, plain)
        shown = await post(client, server.url + CHAT, asked)
        sent = [call.members["stream_options"] for call in upstream.calls]
        assert sent == [{"include_usage": True}] * 2
        assert len(shown.events) == len(hidden.events) + 1


def delta_of(event: str) -> Any:
    """What an event adds to the answer, without what differs between two requests."""
    if event == "[DONE]":
        return event
    choices = json.loads(event)["choices"]
    return [(choice["delta"], choice["finish_reason"]) for choice in choices]


async def test_charge_when_the_client_leaves_then_what_was_streamed_is_charged(
    engine_server: Server,
) -> None:
    """Neither nothing nor the whole maximum."""
    async with (
        session() as client,
        scripted(stream(50, gap_s=0.02)) as upstream,
        gateway(upstream.url) as server,
    ):
        async with client.post(
            server.url + CHAT, json=chat(max_tokens=50, stream=True)
        ) as response:
            await response.content.readany()
            await asyncio.sleep(0.2)
            response.close()
        await eventually(lambda: ledger_of(server)["in_flight"] == 0)
        assert 1 <= charged(server)[1] < 50
