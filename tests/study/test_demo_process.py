"""The demo with its real processes, shortened."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.polling import eventually_sync

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COMMAND = (sys.executable, "-m", "tokenweir", "demo", "--seconds", "6", "--json")


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and not yet taken leave of."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def test_demo_when_run_then_both_sides_are_told_and_the_ledger_is_empty() -> None:
    """One document with both sides, in which attempts are conserved and no hold is left."""
    ended = subprocess.run(COMMAND, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert set(document) == {"with", "without", "ledger_after"}
    assert document["ledger_after"] == 0
    for name in ("with", "without"):
        side = document[name]
        assert side["arrivals"] == sum(
            side[fate] for fate in ("completed", "refused", "abandoned", "errors", "unserved")
        )
        assert side["ours"]["goodput_unique"] == side["goodput_unique"]
        assert set(side["cpu_fractions"]) == {"engine", "gateway", "load"}
    assert document["with"]["unique"] == document["without"]["unique"]
    assert document["with"]["refused"] > 0
    assert document["without"]["refused"] == 0
    assert document["with"]["ttft_p99_s"] < document["without"]["ttft_p99_s"]


def test_demo_when_interrupted_then_it_stops_its_processes_and_says_what_it_has() -> None:
    """Ctrl-C ends with 130, a document, and none of the processes left."""
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        end_s = time.monotonic() + 30
        while len(started := children_of(process.pid)) < 3 and time.monotonic() < end_s:
            time.sleep(0.05)
        assert len(started) == 3
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "with" not in json.loads(output)
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


def is_running(pid: int) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_demo_when_killed_then_its_processes_end_and_nothing_is_left(tmp_path: Path) -> None:
    """SIGKILL to the demo alone ends engine, gateway and load too, and leaves no file."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        eventually_sync(lambda: len(children_of(process.pid)) == 3, within_s=30)
        started = children_of(process.pid)
        process.kill()
    eventually_sync(lambda: not any(is_running(pid) for pid in started), within_s=8)
    assert list(tmp_path.iterdir()) == []
