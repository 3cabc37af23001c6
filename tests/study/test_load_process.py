"""The load generator as a process, against the emulated engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "tokenweir")
FATES = ("completed", "refused", "abandoned", "errors", "unserved")


@contextmanager
def engine(*options: str) -> Iterator[str]:
    """Run an emulated engine and yield its address."""
    command = [*COMMAND, "engine", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().rsplit(" ", 1)[1].strip()
        finally:
            process.kill()


def run_load(
    url: str, *options: str, trace: str = "azure-conv"
) -> subprocess.CompletedProcess[str]:
    """Run a load to its end."""
    return subprocess.run(
        [*COMMAND, "load", trace, "--url", url, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def figures(output: str) -> dict[str, Any]:
    """Return the figures of the one row that was printed."""
    (row,) = json.loads(output)["rows"]
    return dict(row["ours"])


def test_load_when_the_engine_keeps_up_then_all_are_completed_and_good() -> None:
    """Under light load everything is served within the SLO, with the usage the engine reports."""
    with engine("--speed", "20") as url:
        ended = run_load(url, "--rate", "40", "--requests", "60", "--scale-tokens", "0.1", "--json")
    assert ended.returncode == 0, ended.stderr
    ours = figures(ended.stdout)
    assert ours["completed"] == ours["unique"] == ours["arrivals"] == 60
    assert ours["goodput_unique"] == 1.0
    assert ours["preemptions"] == 0
    assert ours["client_cpu_fraction"] < 0.7


def test_load_when_overloaded_then_every_attempt_has_one_fate() -> None:
    """With refusals, retries and clients that give up, attempts are conserved."""
    with engine("--max-queued", "8") as url:
        ended = run_load(
            url,
            *("--load", "6", "--profile", "demo", "--duration", "3s", "--scale-tokens", "0.25"),
            *("--timeout", "500ms", "--drain", "2s", "--json"),
        )
    assert ended.returncode == 0, ended.stderr
    ours = figures(ended.stdout)
    assert ours["arrivals"] == sum(ours[fate] for fate in FATES)
    assert ours["arrivals"] == ours["unique"] + ours["retries"]
    assert ours["refused"] > 0
    assert ours["refused_by_reason"] == {"http_503": ours["refused"]}
    assert ours["retries"] > 0
    assert ours["errors"] == 0


def test_load_when_clients_give_up_then_the_engine_is_relieved() -> None:
    """A client that gives up closes its connection, and the engine drops its request."""
    with engine("--speed", "0.1") as url:
        ended = run_load(
            url,
            *("--rate", "20", "--requests", "10", "--scale-tokens", "0.25"),
            *("--timeout", "300ms", "--retries", "0", "--json"),
        )
        ours = figures(ended.stdout)
        assert ours["abandoned"] == ours["arrivals"] == 10
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            page = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert b'vllm:num_requests_running{engine="0",model_name="emulated"} 0.0' in page
    assert b'finished_reason="abort",model_name="emulated"} 10.0' in page


def test_load_when_interrupted_then_it_prints_what_it_has() -> None:
    """Ctrl-C ends arrivals, reports what was sent, and exits with 130."""
    with engine("--speed", "5") as url:
        command = [*COMMAND, "load", "azure-conv", "--url", url, "--rate", "20", "--json"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            _wait_for_a_connection(process.pid)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    ours = figures(output)
    assert not ours["is_complete"]
    assert ours["arrivals"] == sum(ours[fate] for fate in FATES)
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_load_when_printed_for_people_then_the_table_names_the_figures() -> None:
    """Without --json a table comes, with the client's own use of CPU."""
    with engine("--speed", "20") as url:
        ended = run_load(url, "--rate", "50", "--requests", "5", "--scale-tokens", "0.05")
    assert ended.returncode == 0, ended.stderr
    for text in ("goodput, unique requests", "TTFT p99, completed", "CPU of this process"):
        assert text in ended.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "0"], "rate 0 is not allowed, allowed: above 0"),
        (["--rate", "1", "--speed", "2"], "exclude each other"),
        (["--load", "2"], "--load and --profile belong together"),
        (["--timeout", "soon"], "--timeout 'soon' is not allowed"),
        (["--retries", "-1"], "retries -1 is not allowed"),
        (["--step", "often"], "step 'often' is not allowed, allowed: FACTORx@SECONDSs"),
        (["--output-max", "most"], "unknown declared maximum 'most', allowed: exact"),
        (["--url", "ftp://127.0.0.1"], "url 'ftp://127.0.0.1' is not allowed"),
        (["--url", "http://127.0.0.1:1/nope"], "url 'http://127.0.0.1:1/nope' is not allowed"),
        (["--url", "http://127.0.0.1:1?a=b"], "followed by nothing or /v1"),
        (["--url", "http://127.0.0.1:99999"], "url 'http://127.0.0.1:99999' is not allowed"),
        (["--url", "http://u:p@127.0.0.1:1"], "is not allowed, allowed: http://HOST:PORT"),
        (["--url", "http://a..b"], "url 'http://a..b' is not allowed"),
        (["--url", "http://[::1"], "url 'http://[::1' is not allowed"),
        (["--api-key", "a\nb"], "this api key is not allowed"),
        (["--model", "a\nb"], "model 'a\\nb' is not allowed"),
        (["--seed", "-1"], "seed -1 is not allowed"),
        (["--retries", "1000000000"], "retries 1000000000 is not allowed, allowed: 0 to 20"),
        (["--scale-tokens", "1e9"], "scale-tokens 1e+09 is not allowed"),
    ],
)
def test_load_when_an_option_is_wrong_then_one_line_says_what_is_allowed(
    options: list[str], message: str
) -> None:
    """A bad option ends in one line and code 2, before anything is sent."""
    ended = run_load("http://127.0.0.1:1", *options)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_load_when_nothing_answers_then_one_line_says_so() -> None:
    """An address where nobody listens is the user's mistake: one line, code 2."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        ended = run_load(url, "--rate", "1")
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"tokenweir: {url} cannot be reached: ")
    assert ended.stderr.count("\n") == 1


def test_load_when_a_trace_line_is_broken_then_file_and_line_are_named(tmp_path: Path) -> None:
    """The error names file, line and what was expected."""
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,many\n",
        encoding="utf-8",
    )
    ended = run_load("http://127.0.0.1:1", trace=str(trace))
    assert ended.returncode == 2
    assert f"{trace}:2: broken trace line" in ended.stderr
    assert "expected" in ended.stderr
    assert ended.stderr.count("\n") == 1


def _wait_for_a_connection(pid: int) -> None:
    """Return once the process has opened a socket."""
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        links = _links(pid)
        if sum(link.startswith("socket:") for link in links) >= 3:
            return
        time.sleep(0.02)
    raise AssertionError("the load opened no connection")


def _links(pid: int) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except OSError:
            continue
    return found
