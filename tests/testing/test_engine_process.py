"""The emulated engine as a process on a loopback port."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "tokenweir", "engine")


@contextmanager
def engine_process(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run an engine, and yield its process and address."""
    with subprocess.Popen([*COMMAND, *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert " on http://127.0.0.1:" in line, line
            yield process, line.rsplit(" ", 1)[1].strip()
        finally:
            process.kill()


def chat(**fields: object) -> dict[str, object]:
    """Return a chat body."""
    return {"messages": [{"role": "user", "content": "hello there"}], **fields}


async def metric(session: aiohttp.ClientSession, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples with these labels."""
    async with session.get("/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def eventually(
    session: aiohttp.ClientSession, name: str, is_met: Callable[[float], bool]
) -> float:
    """Poll a metric until it is as wanted, for a second; returns its value."""
    end_s = time.monotonic() + 1.0
    while True:
        value = await metric(session, name)
        if is_met(value) or time.monotonic() > end_s:
            return value
        await asyncio.sleep(0.02)


async def test_engine_when_streamed_from_then_usage_words_and_metrics_agree() -> None:
    """A stream's usage, its chunks and the metrics page tell the same numbers."""
    with engine_process("--speed", "10") as (_, url):
        async with aiohttp.ClientSession(url) as session:
            body = chat(
                stream=True, stream_options={"include_usage": True}, emulated_output_tokens=25
            )
            async with session.post("/v1/chat/completions", json=body) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                events = (await response.read()).split(b"\n\n")
            usage = json.loads(events[-3].removeprefix(b"data: "))["usage"]
            assert usage == {"prompt_tokens": 7, "completion_tokens": 25, "total_tokens": 32}
            assert len(events) == 1 + 25 + 1 + 1 + 1
            assert await metric(session, "vllm:prompt_tokens_total") == 7
            assert await metric(session, "vllm:generation_tokens_total") == 25
            assert await metric(session, "vllm:time_to_first_token_seconds_count") == 1
            assert await metric(session, "vllm:inter_token_latency_seconds_count") == 24


@pytest.mark.parametrize("is_stream", [True, False])
async def test_engine_when_a_client_disconnects_then_its_kv_is_free_within_a_second(
    is_stream: bool,
) -> None:
    """Closing the connection aborts the request, streamed or not."""
    with engine_process() as (_, url):
        async with aiohttp.ClientSession(url) as session:
            body = chat(stream=is_stream, emulated_output_tokens=1_000)
            asking = asyncio.create_task(session.post("/v1/chat/completions", json=body))
            assert await eventually(session, "vllm:num_requests_running", lambda n: n == 1) == 1
            if is_stream:
                (await asking).close()
            else:
                asking.cancel()
            assert await eventually(session, "vllm:kv_cache_usage_perc", lambda n: n == 0) == 0
            assert await metric(session, "vllm:request_success_total", finished_reason="abort") == 1


async def test_engine_when_its_pace_is_measured_then_it_is_the_profiles() -> None:
    """25 tokens take 25 steps of the profile, give or take what a busy machine adds."""
    with engine_process("--speed", "2") as (_, url):
        async with aiohttp.ClientSession(url) as session:
            begin_s = time.monotonic()
            body = chat(emulated_output_tokens=25)
            async with session.post("/v1/chat/completions", json=body) as response:
                assert response.status == 200
                await response.read()
            assert 0.49 <= time.monotonic() - begin_s < 1.5


@pytest.mark.parametrize("path", ["/health", "/version", "/v1/models"])
async def test_engine_when_asked_about_itself_then_it_answers(path: str) -> None:
    """What a gateway probes is there."""
    with engine_process() as (_, url):
        async with aiohttp.ClientSession(url) as session, session.get(path) as response:
            assert response.status == 200


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_engine_when_told_to_stop_while_streaming_then_it_ends_cleanly(
    signum: signal.Signals,
) -> None:
    """A signal cuts streams off and ends the process with code 0, without a word."""
    with engine_process() as (process, url):
        async with aiohttp.ClientSession(url) as session:
            body = chat(stream=True, emulated_output_tokens=1_000)
            async with session.post("/v1/chat/completions", json=body) as response:
                await response.content.readline()
                process.send_signal(signum)
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
        _, errors = await asyncio.to_thread(process.communicate, timeout=5)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--profile", "nothing"], "unknown profile 'nothing', allowed: 70b-4xh100, "),
        (["--discipline", "lifo"], "unknown queue discipline 'lifo', allowed: fifo, first_fit"),
        (["--speed", "0"], "speed 0 is not allowed"),
        (["--max-queued", "0"], "max-queued 0 is not allowed"),
        (["--kv-tokens", "0"], "kv_tokens 0 is not allowed"),
        (["--port", "70000"], "port 70000 is not allowed"),
    ],
)
def test_engine_when_an_option_is_wrong_then_one_line_says_what_is_allowed(
    options: list[str], message: str
) -> None:
    """A bad option ends in one line and code 2."""
    ended = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_engine_when_its_port_is_taken_then_one_line_says_so() -> None:
    """A port in use is the user's to resolve: one line, code 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"tokenweir: cannot listen on 127.0.0.1:{port}: ")
    assert ended.stderr.count("\n") == 1
