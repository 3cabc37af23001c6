"""sweep as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.polling import eventually_sync

QUICK = (
    *("sweep", "--requests", "200", "--warmup", "100", "--cooldown", "50", "--load", "0.7,2"),
    *("--policy", "predictive,token", "--jobs", "2"),
)


def test_sweep_when_run_twice_then_the_bytes_are_equal(tmp_path: Path) -> None:
    """Same sweep, same bytes, whether measured or kept from before."""
    first = run(*QUICK, "--json", "--out", str(tmp_path))
    again = run(*QUICK, "--json", "--out", str(tmp_path))
    alone = run(*QUICK[:-2], "--json", "--jobs", "1")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout == alone.stdout
    document = json.loads(first.stdout)
    assert document["is_complete"]
    assert document["policies"] == ["predictive", "token"]
    assert {row["load"] for row in document["rows"]} == {0.7, 2.0}


def test_sweep_when_joblib_has_other_workers_then_the_bytes_are_equal() -> None:
    """Where a run was measured makes no difference."""
    own, loky = run(*QUICK, "--json"), run(*QUICK, "--json", "--backend", "loky")
    assert loky.returncode == 0, loky.stderr
    assert own.stdout == loky.stdout


def test_sweep_when_a_person_runs_it_then_cells_and_promises_are_shown() -> None:
    """A table of cells and one of promises."""
    done = run(*QUICK)
    assert done.returncode == 0, done.stderr
    for word in ("binds", "attained", "predictive against token", "never worse"):
        assert word in done.stdout


def test_sweep_when_interrupted_then_what_had_ended_is_shown_and_kept(tmp_path: Path) -> None:
    """Ctrl-C ends with 130, whole JSON of what there is, and the runs on disk."""
    arguments = ("sweep", "--plan", "real", "--requests", "300", "--json", "--out", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenweir", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    kept = tmp_path / "jobs.jsonl"
    eventually_sync(lambda: kept.exists() and kept.read_text().count("\n") > 3, within_s=60)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(output)["is_complete"] is False
    assert all(json.loads(line)["figures"] for line in kept.read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--plan", "imaginary"), "quick, real, real-full"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--profile", "gpu"), "article"),
        (("--profile", "article,article"), "named twice"),
        (("--policy", "magic"), "none, concurrency, aimd"),
        (("--policy", "none*"), "no limit to tune"),
        (("--load", "0"), "0.001 to 1,000"),
        (("--requests", "few"), "2 or more, or all"),
        (("--warmup", "100000"), "of warm-up"),
        (("--slo-ttft", "1"), "--slo-ttft"),
        (("--slo-unloaded", "-1"), "unloaded_ratio -1"),
        (("--declared", "much"), "exact, x2, 4096, mix, unset"),
        (("--seeds", "0"), "--seeds 0"),
        (("--jobs", "0"), "--jobs 0"),
        (("--backend", "threading"), "loky, dask"),
        (("--backend", "dask"), "distributed"),
        (("--tune-requests", "1", "--policy", "predictive,concurrency*"), "--tune-requests 1"),
    ],
)
def test_sweep_when_a_word_is_wrong_then_one_line_says_what_is_allowed(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Exit code 2, one line, no traceback."""
    done = run("sweep", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("tokenweir: ")
    assert expected in line
