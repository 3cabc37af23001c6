"""Class, wait and deadline as callers ask for them over HTTP: a real gateway before an engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.gateway.clients import CHAT, Answer, chat, post, session
from tests.gateway.processes import Server, engine, gateway, ledger_of, metric, run_cli, started
from tests.gateway.scripted import Call, event, scripted
from tests.polling import eventually

pytestmark = pytest.mark.integration

# Return slots pace by the rate, which a test of waits does not want to depend on.
ONE = {"policy": "concurrency", "concurrency": 1, "paced_returns": False}
ACME, PLAIN = "sk-key-of-tenant-acme", "sk-key-of-tenant-plain"
HASHES = {
    # Of the two above.
    ACME: "KEY_ACME",
    PLAIN: "KEY_PLAIN",
}


@pytest.fixture
async def engine_server() -> AsyncIterator[Server]:
    """An engine that produces 100 tokens a second per stream."""
    async with started(engine(profile="article", speed=1)) as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that gateways find their keys in."""
    for key, name in HASHES.items():
        monkeypatch.setenv(name, key)


@contextlib.asynccontextmanager
async def held(client: aiohttp.ClientSession, server: Server) -> AsyncIterator[None]:
    """Keep the only place of a pool taken."""
    body = chat(max_tokens=3_000, ignore_eos=True, stream=True)
    task = asyncio.create_task(post(client, server.url + CHAT, body))
    try:
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        yield
    finally:
        task.cancel()


async def timed(
    client: aiohttp.ClientSession, server: Server, *, key: str = "", **wishes: str
) -> tuple[float, Answer]:
    """Ask with wishes as headers; returns how many seconds the answer took, and the answer."""
    headers = {f"x-tokenweir-{name.replace('_', '-')}": value for name, value in wishes.items()}
    if key:
        headers["authorization"] = f"Bearer {key}"
    began_s = time.monotonic()
    got = await post(client, server.url + CHAT, chat(max_tokens=10), headers=headers)
    return time.monotonic() - began_s, got


@pytest.mark.case("CASE-E7")
async def test_wait_when_classes_have_their_own_then_each_holds_and_callers_only_shorten_it(
    engine_server: Server,
) -> None:
    """0.4 s, 0.8 s, 1.2 s and 1.6 s by class; half of P3's on request; twice P1's is not given."""
    waits = {"P0": "400ms", "P1": "800ms", "P2": "1200ms", "P3": "1600ms"}
    pool = {**ONE, "classes": {name: {"wait": wait} for name, wait in waits.items()}}
    tenants = [{"name": "default", "highest_class": "P0"}]
    async with (
        session() as client,
        gateway(engine_server.url, pool=pool, settings={"tenants": tenants}) as server,
        held(client, server),
    ):
        asked: list[tuple[dict[str, str], float, str | None]] = [
            ({}, 0.8, None),
            ({"class": "P0"}, 0.4, None),
            ({"class": "interactive"}, 0.4, None),
            ({"class": "P2"}, 1.2, None),
            ({"class": "P3"}, 1.6, None),
            ({"class": "batch", "wait_ms": "800"}, 0.8, None),
            ({"wait_ms": "1600"}, 0.8, "wait-ms=800"),
            ({"class": "P0", "wait_ms": "999999"}, 0.4, "wait-ms=400"),
            ({"wait_ms": "0"}, 0.0, None),
        ]
        answers = await asyncio.gather(*(timed(client, server, **w) for w, _, _ in asked))
        for (took_s, got), (wishes, wait_s, clamped) in zip(answers, asked, strict=True):
            assert got.status == 429, wishes
            assert got.code == ("overload_concurrency" if wait_s == 0 else "queue_timeout"), wishes
            assert wait_s <= took_s < wait_s + 0.35, wishes
            assert got.headers.get("x-tokenweir-clamped") == clamped, wishes


@pytest.mark.case("CASE-E10")
async def test_class_when_a_client_asks_for_the_highest_then_policy_clamps_it(
    engine_server: Server,
) -> None:
    """Of three that wait, the tenant that may goes first, and who only claims so goes last."""
    tenants = [
        {"name": "acme", "keys": [{"env": "KEY_ACME"}], "highest_class": "P0"},
        {"name": "plain", "keys": [{"env": "KEY_PLAIN"}], "default_class": "P2"},
    ]
    pool = {**ONE, "concurrency": 1, "classes": {"P0": {"wait": "20s"}, "P1": {"wait": "20s"}}}
    order: list[str] = []
    async with (
        session() as client,
        gateway(engine_server.url, pool=pool, settings={"tenants": tenants}) as server,
    ):

        async def ask(name: str, **wishes: str) -> Answer:
            _, got = await timed(client, server, **wishes)
            order.append(name)
            return got

        async with held(client, server):
            tasks = []
            for number, (name, key) in enumerate([
                ("plain", PLAIN),
                ("unknown", "sk-somebody-elses"),
                ("acme", ACME),
            ]):
                asking = ask(name, key=key, **{"class": "system"})
                tasks.append(asyncio.create_task(asking))
                await eventually(lambda n=number: ledger_of(server)["queued"] == n + 1)
        plain, unknown, acme = await asyncio.gather(*tasks)
        assert {got.status for got in (plain, unknown, acme)} == {200}
        assert order == ["acme", "unknown", "plain"]
        clamped = [got.headers.get("x-tokenweir-clamped") for got in (plain, unknown, acme)]
        assert clamped == ["class=P2", "class=P1", None]


@pytest.mark.case("CASE-E10")
async def test_deadline_when_a_client_claims_a_millisecond_then_it_jumps_no_queue(
    engine_server: Server,
) -> None:
    """It is moved to the tenant's nearest, and told; whoever came before it is served before it."""
    tenants = [{"name": "default", "shortest_deadline": "10s"}]
    pool = {**ONE, "queue": {"wait": "9s"}}
    order: list[str] = []
    async with (
        session() as client,
        gateway(engine_server.url, pool=pool, settings={"tenants": tenants}) as server,
    ):

        async def ask(name: str, **wishes: str) -> Answer:
            _, got = await timed(client, server, **wishes)
            order.append(name)
            return got

        async with held(client, server):
            first = asyncio.create_task(ask("first"))
            await eventually(lambda: ledger_of(server)["queued"] == 1)
            hasty = asyncio.create_task(ask("hasty", deadline_ms="1"))
            await eventually(lambda: ledger_of(server)["queued"] == 2)
        assert (await first).status == 200
        got = await hasty
        assert (got.status, got.headers["x-tokenweir-clamped"]) == (200, "deadline-ms=10000")
        assert order == ["first", "hasty"]


async def test_deadline_when_it_passes_in_the_queue_then_is_told_as_such(
    engine_server: Server,
) -> None:
    """Before the wait of its class is over."""
    async with (
        session() as client,
        gateway(engine_server.url, pool=ONE) as server,
        held(client, server),
    ):
        took_s, got = await timed(client, server, deadline_ms="1200")
        assert (got.status, got.code) == (429, "deadline_exceeded")
        assert 1.2 <= took_s < 1.6


async def test_deadline_when_it_passes_at_the_engine_then_the_work_is_stopped(
    engine_server: Server,
) -> None:
    """504 where nothing was sent yet, an error event in a stream, and nothing held afterwards."""
    async with session() as client, gateway(engine_server.url) as server:
        url, headers = server.url + CHAT, {"x-tokenweir-deadline-ms": "1000"}
        plain = chat(max_tokens=1_000, ignore_eos=True)
        began_s = time.monotonic()
        got = await post(client, url, plain, headers=headers)
        assert 1.0 <= time.monotonic() - began_s < 1.6
        assert (got.status, got.code) == (504, "deadline_passed")
        assert got.headers["x-should-retry"] == "false"
        events = await streamed(client, url, chat(max_tokens=1_000, ignore_eos=True, stream=True))
        assert len(events) > 20
        assert '"code":"deadline_passed"' in events[-1]
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0)
        short = await post(client, url, chat(max_tokens=10), headers=headers)
        assert short.status == 200


async def streamed(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> list[str]:
    """The data of a stream's events that has a second, also of one that is cut."""
    seen = bytearray()
    headers = {"x-tokenweir-deadline-ms": "1000"}
    async with client.post(url, json=body, headers=headers) as response:
        with contextlib.suppress(aiohttp.ClientPayloadError):
            async for piece in response.content.iter_any():
                seen += piece
    return [line[6:] for line in seen.decode().split("\n") if line.startswith("data: ")]


async def test_deadline_when_only_observed_then_nothing_is_cut() -> None:
    """Who looks before enforcing changes nobody's answers."""

    async def slow(call: Call) -> None:
        await call.start()
        for _ in range(4):
            await call.chunk(event({"choices": [{"index": 0, "delta": {"content": "a"}}]}))
            await asyncio.sleep(0.4)
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()

    async with (
        scripted(slow) as upstream,
        session() as client,
        gateway(upstream.url, settings={"observe": True}) as server,
    ):
        events = await streamed(client, server.url + CHAT, chat(stream=True))
        assert events[-1] == "[DONE]"


@pytest.mark.parametrize(
    ("header", "value", "allowed"),
    [
        ("x-tokenweir-class", "urgent", "P0 to P3, or system, interactive, normal, agent, batch"),
        ("x-tokenweir-wait-ms", "5s", "whole milliseconds, 0 to 999999999"),
        ("x-tokenweir-deadline-ms", "0", "whole milliseconds, 1 to 999999999"),
    ],
)
async def test_wish_when_it_cannot_be_read_then_400_with_one_clear_line(
    engine_server: Server, header: str, value: str, allowed: str
) -> None:
    """Name, value, and what is allowed; nothing reaches the engine."""
    async with session() as client, gateway(engine_server.url) as server:
        got = await post(client, server.url + CHAT, chat(), headers={header: value})
        assert (got.status, got.code) == (400, "bad_request")
        error = got.members["error"]
        assert error["message"] == f"{header} is '{value}', allowed: {allowed}"
        assert error["param"] == header
        assert got.headers["x-should-retry"] == "false"
        assert metric(server.admin_url, "tokenweir_decisions_total") == 0


async def test_tenant_when_it_has_a_cap_then_its_own_limit_is_named_and_others_pass(
    engine_server: Server,
) -> None:
    """By the key alone: the second request of acme is refused, anybody else's is not."""
    tenants = [{"name": "acme", "keys": [{"env": "KEY_ACME"}], "concurrency": 1}]
    pool = {"policy": "concurrency", "concurrency": 9, "queue": {"items": 0}}
    async with (
        session() as client,
        gateway(engine_server.url, pool=pool, settings={"tenants": tenants}) as server,
    ):
        headers = {"authorization": f"Bearer {ACME}"}
        body = chat(max_tokens=3_000, ignore_eos=True, stream=True)
        running = asyncio.create_task(post(client, server.url + CHAT, body, headers=headers))
        await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        _, second = await timed(client, server, key=ACME)
        _, other = await timed(client, server, key=PLAIN)
        assert (second.status, second.code) == (429, "tenant_concurrency")
        assert second.members["error"]["tokenweir"]["scope"] == "tenant"
        assert other.status == 200
        running.cancel()


async def test_wait_when_the_tenant_has_one_then_its_callers_have_no_longer_one(
    engine_server: Server,
) -> None:
    """0.5 s of 5 s, unless the caller wants less."""
    tenants = [{"name": "acme", "keys": [{"env": "KEY_ACME"}], "wait": "500ms"}]
    async with (
        session() as client,
        gateway(engine_server.url, pool=ONE, settings={"tenants": tenants}) as server,
        held(client, server),
    ):
        (took_s, plain), (less_s, less), (_, more) = await asyncio.gather(
            timed(client, server, key=ACME),
            timed(client, server, key=ACME, wait_ms="100"),
            timed(client, server, key=ACME, wait_ms="3000"),
        )
        assert {got.code for got in (plain, less, more)} == {"queue_timeout"}
        assert 0.5 <= took_s < 0.85
        assert 0.1 <= less_s < 0.45
        assert more.headers["x-tokenweir-clamped"] == "wait-ms=500"


async def test_length_mode_when_a_tenant_pays_for_it_then_its_whole_maximum_is_reserved(
    engine_server: Server,
) -> None:
    """Its own requests alone; the others' are predicted."""
    tenants = [{"name": "acme", "keys": [{"env": "KEY_ACME"}], "length_mode": "declared"}]
    async with (
        session() as client,
        gateway(engine_server.url, settings={"tenants": tenants}) as server,
    ):
        url, body = server.url + CHAT, chat(max_tokens=4_000)
        paid = await post(client, url, body, headers={"authorization": f"Bearer {ACME}"})
        plain = await post(client, url, body)
        assert int(paid.headers["x-tokenweir-reserved-tokens"]) > 4_000
        assert int(plain.headers["x-tokenweir-reserved-tokens"]) < 2_000


async def test_admin_when_asked_then_shows_the_settings_that_hold(engine_server: Server) -> None:
    """Written ones and defaults; where keys are, and none of them."""
    tenants = [{"name": "acme", "keys": [{"env": "KEY_ACME"}], "weight": 3}]
    async with (
        session() as client,
        gateway(engine_server.url, pool=ONE, settings={"tenants": tenants}) as server,
        client.get(f"{server.admin_url}/admin/v1/settings") as response,
    ):
        text = await response.text()
    tree = json.loads(text)
    assert tree["tenants"][0]["weight"] == 3
    assert tree["tenants"][0]["keys"] == [{"env": "KEY_ACME"}]
    assert tree["pools"][0]["classes"]["P0"]["wait"] == "500ms"
    assert ACME not in text


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (None, "environment variable TICKET_KEY is not set"),
        ("changeme", "has 8 characters, allowed: 32 random characters or more"),
    ],
)
def test_serve_when_the_ticket_key_is_weak_or_missing_then_does_not_start(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, key: str | None, line: str
) -> None:
    """One line, with the path in the file."""
    monkeypatch.delenv("TICKET_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("TICKET_KEY", key)
    path = tmp_path / "weir.yaml"
    path.write_text(
        "pools: [{replicas: [{url: 'http://127.0.0.1:9'}]}]\ntickets: {keys: [{env: TICKET_KEY}]}\n"
    )
    ended = run_cli("serve", "--config", str(path))
    assert ended.returncode == 2
    (said,) = ended.stderr.splitlines()
    assert said.startswith(f"tokenweir: {path}: tickets.keys[0]")
    assert line in said
    assert key is None or key not in said
