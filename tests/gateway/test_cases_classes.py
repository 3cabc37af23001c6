"""Classes over HTTP: batch work in a pool of its own, and batch work that gives way."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.gateway.clients import CHAT, chat, post, session
from tests.gateway.processes import Server, gateway, ledger_of, metric
from tests.gateway.scripted import Call, event, hang, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

TENANTS = {"tenants": [{"name": "default", "highest_class": "P0"}]}
ONE_SEAT = {"policy": "concurrency", "concurrency": 1}


def klass(name: str) -> dict[str, str]:
    """Ask for a class."""
    return {"x-tokenweir-class": name}


def is_empty(server: Server) -> bool:
    """Whether nothing is held, reserved or draining."""
    pool = ledger_of(server)
    return pool["used_tokens"] == 0 and pool["in_flight"] == 0 and pool["queued"] == 0


async def test_batch_when_it_has_a_pool_of_its_own_then_goes_there_and_nobody_else_does() -> None:
    """By the class that is granted, not by the one that is asked for."""
    async with session() as client, scripted(stream()) as fast, scripted(stream()) as batch:
        pools = [
            {"name": "fast", "replicas": [{"url": fast.url}]},
            {"name": "batch", "replicas": [{"url": batch.url}]},
        ]
        routes = [{"match": {"classes": ["P2", "P3"]}, "pool": "batch"}, {"pool": "fast"}]
        settings = {
            "pools": pools,
            "routes": routes,
            "tenants": [{"name": "default", "highest_class": "P1"}],
        }
        async with gateway(settings=settings) as server:
            for name in ("P0", "P1", "P2", "batch"):
                got = await post(client, server.url + CHAT, chat(max_tokens=5), headers=klass(name))
                assert got.status == 200
            assert (len(fast.calls), len(batch.calls)) == (2, 2)


async def test_batch_when_not_begun_then_put_back_for_an_urgent_one_and_served_after_it() -> None:
    """Its client sees time pass and nothing else; its engine's connection is cut meanwhile."""

    async def script(call: Call) -> None:
        await (hang(call) if call.number == 0 else stream()(call))

    async with (
        session() as client,
        scripted(script) as upstream,
        gateway(upstream.url, pool=ONE_SEAT, settings=TENANTS) as server,
    ):
        url = server.url + CHAT
        body = chat(max_tokens=5, stream=True)
        batch = asyncio.create_task(post(client, url, body, headers=klass("P2")))
        await eventually(lambda: len(upstream.calls) == 1)
        urgent = await post(client, url, body, headers=klass("P0"))
        assert (urgent.status, urgent.events[-1]) == (200, "[DONE]")
        got = await batch
        assert (got.status, got.events[-1]) == (200, "[DONE]")
        assert len(upstream.calls) == 3
        assert [call.number for call in upstream.aborted] == [0]
        await eventually(lambda: is_empty(server))
        page = server.admin_url
        assert metric(page, "tokenweir_interruptions_total", begun="false") == 1


async def test_batch_stream_when_its_class_may_be_broken_then_told_why_and_nothing_is_held() -> (
    None
):
    """A P2 stream gives way to a P0: an error event with a reason, KV back to nought."""

    async def script(call: Call) -> None:
        if call.number > 0:
            await stream()(call)
            return
        await call.start()
        while call.aborted_s is None:
            await call.chunk(event())
            await asyncio.sleep(0.02)

    pool = {**ONE_SEAT, "classes": {"P2": {"interruptible": "always"}}}
    async with (
        session() as client,
        scripted(script) as upstream,
        gateway(upstream.url, pool=pool, settings=TENANTS) as server,
    ):
        url = server.url + CHAT
        body = chat(max_tokens=500, stream=True)
        async with client.post(url, json=body, headers=klass("P2")) as broken:
            assert broken.status == 200
            seen = bytearray(await broken.content.readany())
            short = chat(max_tokens=5, stream=True)
            urgent = asyncio.create_task(post(client, url, short, headers=klass("P0")))
            assert await is_cut(broken, seen)
        assert b"event: error" in seen
        assert b'"code":"interrupted"' in seen
        assert (await urgent).status == 200
        assert [call.number for call in upstream.aborted] == [0]
        await eventually(lambda: is_empty(server))
        page = server.admin_url
        assert metric(page, "tokenweir_interruptions_total", begun="true") == 1
        assert metric(page, "tokenweir_settles_total", outcome="interrupted") == 1


async def is_cut(answer: aiohttp.ClientResponse, seen: bytearray) -> bool:
    """Read a stream to its end; tells whether that was no clean one."""
    try:
        while part := await answer.content.readany():
            seen += part
    except aiohttp.ClientPayloadError:
        return True
    return False
