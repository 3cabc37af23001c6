"""``tokenweir serve`` from its first line to its last: start, mistakes, stopping."""

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from tests.gateway.clients import CHAT, chat, post, session
from tests.gateway.processes import Server, gateway, ledger_of, run_cli, started, status_of
from tests.gateway.scripted import hang, scripted, stream
from tests.polling import eventually

pytestmark = pytest.mark.integration


def one_line(*arguments: str) -> str:
    """The one line that a mistaken start leaves on stderr."""
    result = run_cli("serve", *arguments)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_serve_when_the_port_is_taken_then_one_line() -> None:
    """No traceback of a server that could not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = one_line("--upstream", "http://127.0.0.1:9", "--port", port)
        assert line == f"tokenweir: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_serve_when_the_file_has_a_typo_then_one_line_names_path_and_allowed_keys(
    tmp_path: Path,
) -> None:
    """The file, the path in it, the nearest key and all that are allowed."""
    path = tmp_path / "weir.yaml"
    path.write_text("pools:\n  - replicas: [{ulr: http://127.0.0.1:9}]\n", encoding="utf-8")
    result = run_cli("serve", "--config", str(path))
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"tokenweir: {path}: pools[0].replicas[0].url is missing, it is required",
        f"{path}: pools[0].replicas[0].ulr is an unknown key, did you mean url? "
        "allowed: url, name, kv_tokens",
    ]


async def test_serve_when_signalled_before_it_is_ready_then_it_lives() -> None:
    """A signal that means something later ends nothing now."""
    async with scripted(stream()) as upstream:
        upstream.is_hung = True
        server = Server("serve", "--upstream", upstream.url, "--port", "0", "--admin-port", "0")
        starting = asyncio.create_task(asyncio.to_thread(server.__enter__))
        try:
            # The first look at the engine waits for its answer: handlers are in place by then.
            await eventually(lambda: upstream.pages_asked > 0, within_s=20)
            server.signal(signal.SIGUSR1)
            await starting
            assert ledger_of(server)["mode"] == "bypass"
        finally:
            await asyncio.to_thread(server.__exit__)


@pytest.mark.parametrize("name", ["a..b", "a" * 70, "a\n", "\u2028"])
def test_serve_when_the_host_cannot_be_a_name_then_one_line(name: str) -> None:
    """What fails before any look-up is a mistake like any other."""
    assert "tokenweir: cannot listen on " in one_line(
        "--upstream", "http://127.0.0.1:9", "--host", name
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--config", "/none.yaml"], "/none.yaml: cannot be read: No such file or directory"),
        (["--upstream", "ftp://x"], "pools[0].replicas[0].url is 'ftp://x', allowed: a URL"),
        (
            ["--upstream", "http://127.0.0.1:9", "--policy", "tokn"],
            "unknown policy 'tokn', allowed: none, concurrency, aimd,",
        ),
        (
            ["--upstream", "http://127.0.0.1:9", "--host", "203.0.113.7", "--port", "0"],
            "cannot listen on 203.0.113.7:0: Cannot assign requested address",
        ),
    ],
)
def test_serve_when_an_option_is_wrong_then_one_line(arguments: list[str], part: str) -> None:
    """Each mistake is named with what is allowed."""
    assert part in one_line(*arguments)


async def test_serve_when_no_upstream_is_named_then_an_emulated_engine_answers() -> None:
    """The first command a newcomer types works, and prints a request to try."""
    async with session() as client, started(Server("serve", "--port", "0")) as server:
        await eventually(lambda: "curl -N" in server.log())
        got = await post(client, server.url + CHAT, chat(max_tokens=5, ignore_eos=True))
        assert got.members["usage"]["completion_tokens"] == 5
        assert status_of(server.url + "/metrics") == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_serve_when_told_to_stop_then_streams_finish_and_newcomers_go_elsewhere(
    number: signal.Signals,
) -> None:
    """Not ready any more, 503 with advice, the running stream complete, exit code 0."""
    async with (
        session() as client,
        scripted(stream(20, gap_s=0.05)) as upstream,
        gateway(upstream.url) as server,
    ):
        url, body = server.url + CHAT, chat(max_tokens=20, stream=True)
        running = asyncio.create_task(post(client, url, body))
        await eventually(lambda: len(upstream.calls) == 1)
        server.signal(number)
        await eventually(lambda: status_of(server.url + "/readyz") == 503)
        assert status_of(server.url + "/healthz") == 200
        refused = await post(client, url, body)
        assert (refused.status, refused.code) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        got = await running
        assert got.events[-1] == "[DONE]"
        assert await asyncio.to_thread(server.wait, within_s=10) == 0


async def test_serve_when_streams_outlast_the_grace_then_ended_told_and_the_process_ends() -> None:
    """A bounded shutdown: the client learns why, the upstream is let go, exit code 0."""
    settings = {"limits": {"drain": "500ms"}}
    async with (
        session() as client,
        scripted(hang) as upstream,
        gateway(upstream.url, settings=settings) as server,
    ):
        asking = asyncio.create_task(
            post(client, server.url + CHAT, chat(max_tokens=5, stream=True))
        )
        await eventually(lambda: len(upstream.calls) == 1)
        server.signal(signal.SIGINT)
        got = await asking
        assert (got.status, got.code) == (503, "draining")
        assert await asyncio.to_thread(server.wait, within_s=10) == 0
        await eventually(lambda: len(upstream.aborted) == 1)
        assert "1 requests still ran after 0 s: ended" in server.log()


async def test_serve_when_signalled_then_bypass_is_toggled() -> None:
    """An operator without the admin listener can still let everything through."""
    async with scripted(stream()) as upstream, gateway(upstream.url) as server:
        for mode in ("bypass", "enforce"):
            server.signal(signal.SIGUSR1)
            await eventually(lambda mode=mode: ledger_of(server)["mode"] == mode)
