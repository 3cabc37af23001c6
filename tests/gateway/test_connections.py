"""What a connection does, whatever it is, leaves nothing held."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.gateway.clients import CHAT, chat
from tests.gateway.processes import Server, gateway, ledger_of
from tests.gateway.scripted import hang, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

PING = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


def request(extra: str = "", *, padding: int = 0) -> bytes:
    """A chat request that is not streamed."""
    body = json.dumps(chat("x" * padding, max_tokens=5)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def connected(server: Server) -> socket.socket:
    """A raw connection."""
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


def received(connection: socket.socket) -> bytes:
    """All until the connection ends."""
    parts = b""
    while part := connection.recv(65_536):
        parts += part
    return parts


@pytest.mark.parametrize("pause_s", [0.0, 0.2], ids=["at once", "later"])
@pytest.mark.parametrize(
    "behind", [PING, request(), request(padding=200_000)], ids=["ping", "chat", "large"]
)
async def test_client_when_it_pipelines_and_leaves_then_its_hold_ends(
    behind: bytes, pause_s: float
) -> None:
    """Not the length of the answer decides how long a client that is gone holds permits."""
    async with scripted(hang) as upstream, gateway(upstream.url) as server:
        with connected(server) as connection:
            connection.sendall(request())
            if pause_s:
                await eventually(lambda: len(upstream.calls) == 1)
            connection.sendall(behind)
            await eventually(lambda: ledger_of(server)["in_flight"] == 1)
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0, within_s=3)
        await eventually(lambda: len(upstream.aborted) == 1)


async def test_client_when_it_pipelines_leaves_and_was_queued_then_its_place_is_free() -> None:
    """A request that waits is given up like one that runs."""
    pool = {"policy": "concurrency", "concurrency": 1, "queue": {"wait": "60s"}}
    async with scripted(hang) as upstream, gateway(upstream.url, pool=pool) as server:
        with connected(server) as first, connected(server) as second:
            first.sendall(request())
            await eventually(lambda: ledger_of(server)["in_flight"] == 1)
            second.sendall(request() + PING)
            await eventually(lambda: ledger_of(server)["queued"] == 1)
            second.close()
            await eventually(lambda: ledger_of(server)["queued"] == 0, within_s=3)


async def test_client_when_it_pipelines_and_stays_then_every_request_is_answered() -> None:
    """Answers come in the order of the requests."""
    async with scripted(stream()) as upstream, gateway(upstream.url) as server:
        with connected(server) as connection:
            last = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            connection.sendall(request() * 2 + PING + last)
            got = await asyncio.to_thread(received, connection)
        assert got.count(b"HTTP/1.1 200 OK") == 4
        assert got.rindex(b"[DONE]") < got.index(b'{"status":"ok"}') < got.index(b'"ready"')


async def test_client_when_it_sends_without_end_behind_a_request_then_it_is_cut() -> None:
    """What is kept of a client that does not wait for its answer is bounded."""
    settings = {"limits": {"body": 100_000}}
    async with scripted(hang) as upstream, gateway(upstream.url, settings=settings) as server:
        with connected(server) as connection:
            connection.sendall(request())
            await eventually(lambda: ledger_of(server)["in_flight"] == 1)
            with pytest.raises(ConnectionError):
                await asyncio.to_thread(connection.sendall, PING * 1_000_000)
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0, within_s=3)


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
async def test_request_when_it_offers_another_protocol_then_it_is_served_as_it_is(
    protocol: str,
) -> None:
    """The body is read, also where it comes in pieces, and what is behind it too."""
    offer = f"connection: Upgrade\r\nupgrade: {protocol}\r\n"
    async with scripted(stream()) as upstream, gateway(upstream.url) as server:
        with connected(server) as connection:
            sent = request(offer, padding=3_000)
            last = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            connection.sendall(sent[:-2_000])
            await asyncio.sleep(0.1)
            connection.sendall(sent[-2_000:] + last)
            got = await asyncio.to_thread(received, connection)
        assert got.count(b"HTTP/1.1 200 OK") == 2
        assert len(upstream.calls[0].body) > 3_000
        assert "upgrade" not in upstream.calls[0].headers


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat/comp", PING + b"GET /he"])
async def test_head_when_it_never_ends_then_the_connection_is_closed(begun: bytes) -> None:
    """Half a head holds no connection for ever."""
    settings = {"limits": {"body_timeout": "500ms"}}
    async with scripted(stream()) as upstream, gateway(upstream.url, settings=settings) as server:
        with connected(server) as connection:
            connection.settimeout(8)
            connection.sendall(begun)
            got = await asyncio.to_thread(received, connection)
            assert got.count(b"200 OK") == begun.count(b"\r\n\r\n")


async def test_connections_when_over_the_limit_then_further_ones_are_closed() -> None:
    """Also connections that ask nothing are counted."""
    settings = {"limits": {"connections": 1}}
    async with scripted(stream()) as upstream, gateway(upstream.url, settings=settings) as server:
        held = [connected(server) for _ in range(1_001)]
        try:
            with connected(server) as one_more:
                assert await asyncio.to_thread(received, one_more) == b""
        finally:
            for connection in held:
                connection.close()
