"""The command line as a process: interrupted, killed, and with outputs that lead nowhere."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import tokenweir
from tests.polling import eventually_sync

pytestmark = pytest.mark.integration

COMMAND = (sys.executable, "-m", "tokenweir")
POOLED = (*COMMAND, "simulate", "article", "--seeds", "3", "--no-flaws")
QUICK = (*COMMAND, "replay", "article-lengths", "--requests", "50", "--json")


def alive_in(group: int) -> list[int]:
    """Return the processes of a process group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(its_group) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def start(command: tuple[str, ...]) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def start_pool() -> subprocess.Popen[str]:
    """Start a command that uses several processes, and wait until they are at work."""
    process = start(POOLED)
    eventually_sync(lambda: len(alive_in(process.pid)) >= 3, within_s=20)
    return process


def shell(line: str, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its outputs; ``line`` has "$@" for it."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *command], capture_output=True, text=True, timeout=60, check=False
    )


skip_single_core = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one core runs everything in one process",
)


@skip_single_core
def test_pool_when_interrupted_twice_then_all_processes_are_gone_at_once() -> None:
    """Two Ctrl-C, 50 ms apart, to the whole group: exit code 130, no traceback, nobody left."""
    process = start_pool()
    start_s = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - start_s < 5
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert alive_in(process.pid) == []


def test_interrupt_when_the_interpreter_cannot_pass_it_on_then_the_process_ends_all_the_same() -> (
    None
):
    """A callback around a fork, like those of logging, swallows what is raised in it."""
    script = """
import os, signal
from tokenweir.cli.process import Interrupts
with Interrupts() as interrupts:
    interrupts.command_begins()
    os.register_at_fork(before=lambda: signal.raise_signal(signal.SIGINT))
    os.fork()
    os._exit(7)
"""
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr == ""


@skip_single_core
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_pool_when_only_the_parent_gets_a_signal_then_its_workers_end_too(
    signum: signal.Signals, code: int
) -> None:
    """Whatever ends the parent, no worker survives it."""
    process = start_pool()
    process.send_signal(signum)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in errors
    eventually_sync(lambda: not alive_in(process.pid), within_s=5)


@skip_single_core
def test_pool_when_a_worker_is_killed_then_one_line_says_so() -> None:
    """A worker that the system has killed is no traceback and no endless wait."""
    process = start_pool()
    worker = max(alive_in(process.pid))
    os.kill(worker, signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert errors.strip().splitlines()[-1].startswith("tokenweir: a worker process was killed")
    assert "Traceback" not in errors
    assert alive_in(process.pid) == []


@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.3, 0.45, 0.7])
def test_command_when_interrupted_while_it_starts_then_it_just_ends(delay_s: float) -> None:
    """Ctrl-C during the imports is no traceback."""
    process = start((*COMMAND, "simulate", "article"))
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    # -2 is the system's own answer, before the interpreter has begun.
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", [QUICK, (*COMMAND, "--help"), (*COMMAND, "profile", "list")])
def test_command_when_its_output_is_full_then_one_line_says_so(command: tuple[str, ...]) -> None:
    """A full disk is one line and exit code 1."""
    done = shell('"$@" >/dev/full', command)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("tokenweir: cannot write")
    assert line.endswith("No space left on device")


@pytest.mark.parametrize("streams", [">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_command_when_a_stream_is_closed_then_it_says_nothing_there(streams: str) -> None:
    """What is closed is written nowhere, and neither a crash nor a traceback."""
    done = shell(f'"$@" {streams}', QUICK)
    assert done.returncode == 0
    assert done.stderr.strip() == ""
    assert bool(done.stdout) == (">&-" not in streams.replace("2>&-", ""))


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_service_when_its_messages_are_lost_then_it_serves_and_stops(streams: str) -> None:
    """A gateway without standard error stops on SIGTERM as any other does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    process = start(("sh", "-c", f'exec "$@" {streams}', "sh", *COMMAND, "serve", "--port", port))
    eventually_sync(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), within_s=20)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_command_when_the_extra_is_missing_then_the_line_names_it(tmp_path: Path) -> None:
    """A base install tells what to install, and shows no traceback."""
    (tmp_path / "typer.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')\n"
    )
    done = subprocess.run(
        [*COMMAND, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "'typer' is not installed" in line
    assert "tokenweir[gateway]" in line
    assert "tokenweir[study]" in line


def test_facade_when_a_name_is_asked_for_then_it_comes_from_its_module() -> None:
    """Names are imported late; all of them are there, and no others."""
    homes = tokenweir._HOMES
    assert sorted(name for names in homes.values() for name in names) == sorted(tokenweir.__all__)
    for module, names in homes.items():
        for name in names:
            source = importlib.import_module(f"tokenweir.core.{module}")
            assert getattr(tokenweir, name) is getattr(source, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tokenweir.nothing  # type: ignore[attr-defined]  # that is the test
