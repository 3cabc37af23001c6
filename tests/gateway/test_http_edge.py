"""What reaches the gateway is answered in the contract's words, whatever it is."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from yarl import URL

from tests.gateway.clients import CHAT, TEXT, chat, post, session
from tests.gateway.processes import Server, gateway, ledger_of, metric, status_of
from tests.gateway.scripted import ScriptedUpstream, hang, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration

CAP = 65_536


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    """Streams five chunks."""
    async with scripted(stream()) as running:
        yield running


@pytest.fixture
async def server(upstream: ScriptedUpstream) -> AsyncIterator[Server]:
    """A gateway with a small cap on bodies."""
    limits = {"body": CAP, "body_timeout": "1s"}
    async with gateway(upstream.url, settings={"limits": limits}) as running:
        yield running


def exchange(server: Server, request: bytes, *, rest: bytes = b"") -> bytes:
    """Send raw bytes, then perhaps more, and read until the connection ends or falls silent."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(request)
        if rest:
            connection.sendall(rest)
        received = b""
        try:
            while part := connection.recv(65_536):
                received += part
        except TimeoutError:
            pass
        return received


def head(length: str) -> bytes:
    """The head of a chat request."""
    return (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("body", [b"hello", b"", b"[]", b"{", b'{"model":"m"}', b"\xff\xfe{}"])
async def test_body_when_not_a_request_then_400_and_nothing_is_held(
    server: Server, upstream: ScriptedUpstream, body: bytes
) -> None:
    """A malformed body is answered before anything is reserved."""
    async with session() as client:
        got = await post(client, server.url + CHAT, body)
        assert (got.status, got.code) == (400, "bad_request")
        assert got.headers["x-should-retry"] == "false"
        assert got.members["error"]["tokenweir"]["stage"] == "parse"
    assert upstream.calls == []
    assert ledger_of(server)["in_flight"] == 0


async def test_body_when_over_the_cap_then_413_also_where_its_length_lies(server: Server) -> None:
    """Announced, chunked, or longer than announced: never more than the cap is held."""
    async with session() as client:
        got = await post(client, server.url + CHAT, chat("x" * CAP, max_tokens=5))
        assert (got.status, got.code) == (413, "body_too_large")
        assert got.members["error"]["tokenweir"]["limit"] == CAP

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield b" " * 4_096

        async with client.post(server.url + CHAT, data=pieces()) as response:
            assert response.status == 413
            assert (await response.json())["error"]["code"] == "body_too_large"
    announced = await asyncio.to_thread(exchange, server, head(f"content-length: {10**12}"))
    assert announced.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in announced


async def test_body_when_longer_than_announced_then_the_rest_is_no_second_request(
    server: Server, upstream: ScriptedUpstream
) -> None:
    """What follows the announced length is not taken for part of the body."""
    body = json.dumps(chat(max_tokens=5)).encode()
    request = head(f"content-length: {len(body)}\r\nconnection: close") + body
    received = await asyncio.to_thread(exchange, server, request, rest=b"x" * 100)
    assert received.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))
    assert len(upstream.calls) <= 1


async def test_body_when_it_never_arrives_then_400_in_time(server: Server) -> None:
    """A client that sends a byte and then nothing holds no connection for ever."""
    received = await asyncio.to_thread(exchange, server, head("content-length: 100") + b"{")
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"did not arrive in time" in received


async def test_path_when_unknown_then_404_and_wrong_method_405(server: Server) -> None:
    """Both are error objects that clients of the API can read."""
    async with session() as client:
        got = await post(client, server.url + "/v1/audio/speech", {})
        assert (got.status, got.code) == (404, "not_found")
        async with client.get(server.url + CHAT) as response:
            assert response.status == 405
            assert response.headers["allow"] == "POST"
            assert (await response.json())["error"]["code"] == "method_not_allowed"
        got = await post(client, server.url + "/healthz", {})
        assert got.status == 405


async def test_headers_when_passed_on_then_only_those_of_the_connection_stay_behind(
    server: Server, upstream: ScriptedUpstream
) -> None:
    """Identity and correlation reach the upstream; encoding and our own headers do not."""
    sent = {
        "authorization": "Bearer key",
        "x-request-id": "abc-1",
        "x-custom": "é",
        "x-tokenweir-class": "P2",
        "accept-encoding": "gzip",
        "traceparent": "00-1-2-01",
    }
    async with session() as client:
        got = await post(
            client,
            URL(server.url + CHAT + "?a=1&b=%2F", encoded=True),
            chat(max_tokens=5),
            headers=sent,
        )
    call = upstream.calls[0]
    assert call.path == CHAT + "?a=1&b=%2F"
    assert call.headers["authorization"] == "Bearer key"
    assert call.headers["x-custom"].encode("latin-1") == "é".encode()
    assert call.headers["traceparent"] == "00-1-2-01"
    assert call.headers["x-request-id"] == "abc-1" == got.headers["x-request-id"]
    assert not {"accept-encoding", "x-tokenweir-class"} & set(call.headers)
    assert got.headers["content-type"] == "text/event-stream"


async def test_headers_when_admitted_then_say_what_happened(server: Server) -> None:
    """Decision, reason, wait and hold are on every answer."""
    async with session() as client:
        got = await post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
        assert got.headers["x-tokenweir-decision"] == "admit"
        assert got.headers["x-tokenweir-reason"] == "fits"
        assert got.headers["x-tokenweir-queue-ms"] == "0"
        assert int(got.headers["x-tokenweir-reserved-tokens"]) >= 13
        assert "x-tokenweir-degraded" not in got.headers
        unset = await post(client, server.url + CHAT, chat(stream=True))
        assert unset.headers["x-tokenweir-degraded"] == "max_tokens=4096"
        assert unset.headers["x-request-id"] != got.headers["x-request-id"]


async def test_body_when_within_limits_then_reaches_the_upstream_byte_for_byte(
    server: Server, upstream: ScriptedUpstream
) -> None:
    """Spaces, escapes and unknown members included."""
    body = b'{ "max_tokens":5,"messages":[{"role":"user","content":"h\\u00e9"}], "zz":[1.50] }'
    async with session() as client:
        assert (await post(client, server.url + CHAT, body)).status == 200
    assert upstream.calls[0].body == body


async def test_pages_when_asked_for_then_health_models_and_metrics(
    server: Server, upstream: ScriptedUpstream
) -> None:
    """Metrics stand on the admin listener where there is one."""
    assert status_of(server.url + "/healthz") == 200
    assert status_of(server.url + "/readyz") == 200
    assert status_of(server.url + "/metrics") == 404
    assert status_of(server.admin_url + "/metrics") == 200
    async with session() as client, client.get(server.url + "/v1/models") as response:
        assert response.status == 200
        assert await response.json() == {}


async def test_mode_when_switched_then_bypass_lets_all_through_and_enforce_binds_again() -> None:
    """Without a restart, and the ledger stays true all the while."""
    pool = {"policy": "concurrency", "concurrency": 1, "queue": {"items": 0}}
    async with (
        session() as client,
        scripted(hang) as stuck,
        gateway(stuck.url, pool=pool) as server,
    ):
        url, mode_url = server.url + CHAT, server.admin_url + "/admin/v1/mode"
        body = chat(max_tokens=5, stream=True)
        asking = [asyncio.create_task(post(client, url, body))]
        await eventually(lambda: len(stuck.calls) == 1)
        assert (await post(client, url, body)).status == 429
        assert (await post(client, mode_url, {"mode": "bypass"})).status == 200
        asking += [asyncio.create_task(post(client, url, body)) for _ in range(5)]
        await eventually(lambda: len(stuck.calls) == 6)
        assert ledger_of(server)["in_flight"] == 6
        assert (await post(client, mode_url, {"mode": "enforce"})).status == 200
        assert (await post(client, url, body)).status == 429
        assert (await post(client, mode_url, {"mode": "observe"})).status == 200
        asking.append(asyncio.create_task(post(client, url, body)))
        await eventually(lambda: len(stuck.calls) == 7)
        assert metric(server.admin_url, "tokenweir_observed_refusals_total") == 1
        async with client.get(server.admin_url + "/admin/v1/refusals") as response:
            rows = (await response.json())["pools"][0]["refusals"]
        assert [row["is_enforced"] for row in rows] == [True, True, False]
        assert {row["reason"] for row in rows} == {"overload_concurrency"}
        for task in asking:
            task.cancel()
        await eventually(lambda: ledger_of(server)["used_tokens"] == 0)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ({"mode": "off"}, "application/json"),
        ({}, "application/json"),
        ([], "application/json"),
        ({"mode": "bypass"}, "text/plain"),
    ],
)
async def test_mode_when_the_request_is_wrong_then_nothing_changes(
    server: Server, body: object, content_type: str
) -> None:
    """Unknown modes are named, and a form of a web page cannot switch."""
    async with session() as client:
        got = await post(
            client,
            server.admin_url + "/admin/v1/mode",
            body,
            headers={"content-type": content_type},
        )
        assert got.status == 400
    assert ledger_of(server)["mode"] == "enforce"


async def test_completions_when_posted_then_take_the_same_way(server: Server) -> None:
    """The second path is admitted like the first."""
    async with session() as client:
        got = await post(client, server.url + TEXT, {"prompt": "hi", "max_tokens": 5})
        assert got.status == 200
    assert metric(server.admin_url, "tokenweir_settles_total") == 1
