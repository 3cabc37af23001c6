"""bound and replay --bound as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.polling import eventually_sync

QUICK = ("bound", "azure-conv", "--requests", "300", "--load", "2")


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, after a line of Python."""
    code = (
        f"{before}\nimport sys\nfrom tokenweir.cli import main\nsys.argv[0] = 'tokenweir'\nmain()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_bound_when_asked_for_json_then_levels_are_ordered_and_bytes_are_equal() -> None:
    """E <= L <= knapsack, and the same question has the same answer."""
    first, second = (run(*QUICK, "--json") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)
    assert document["requests"] == 300
    assert document["load"] == 2
    assert document["bucket_s"] == 1
    rows = document["bounds"]
    assert [row["level"] for row in rows] == ["E", "L", "knapsack"]
    for kind in ("count", "tokens"):
        figures = [row[kind] for row in rows]
        assert figures == sorted(figures)
        assert 0 < figures[0] <= 1


def test_bound_when_a_person_runs_it_then_table_and_notes_are_shown() -> None:
    """The width of buckets and the tail of a short trace are said."""
    done = run(*QUICK, "--level", "knapsack", "--bucket", "500ms")
    assert done.returncode == 0, done.stderr
    for word in ("knapsack", "at most", "buckets of 0.5 s", "under 120 s"):
        assert word in done.stdout


def test_bound_when_a_trace_is_long_then_the_width_is_chosen_and_said() -> None:
    """Hours get wider buckets, on an engine whose steps vary."""
    done = run("bound", "mooncake-conv", "--profile", "8b-a100", "--load", "1")
    assert done.returncode == 0, done.stderr
    assert "chosen for the length of the trace" in done.stdout


def test_bound_when_tenants_are_named_then_each_has_its_part() -> None:
    """JSON has the solution's share of every tenant."""
    done = run("bound", "servegen-cheap", "--requests", "500", "--load", "3", "--json")
    (row, *_) = json.loads(done.stdout)["bounds"]
    assert len(row["tenants"]) > 1
    assert all(0 <= part["tokens"] <= 1 for part in row["tenants"].values())


def test_replay_when_measured_then_rows_have_efficiencies() -> None:
    """In JSON and in the table."""
    arguments = ("replay", "servegen-cheap", "--requests", "400", "--load", "2", "--bound")
    done = run(*arguments, "--policy", "token,none", "--json")
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["rows"]:
        ours = row["ours"]
        assert 0 <= ours["efficiency_count"] <= 1
        assert 0 <= ours["efficiency_tokens"] <= 1
        assert ours["bound"]["level"] == "E"
        assert all("efficiency_tokens" in tenant for tenant in ours["tenants"].values())
    shown = run(*arguments, "--policy", "token").stdout
    assert "Efficiency against LP-E" in shown
    assert "Token efficiency by tenant" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--level", "M"), "E, L, knapsack, all"),
        (("--level", "E", "--profile", "8b-h100"), "level E needs steps of a fixed length"),
        (("--bucket", "1"), "--bucket"),
        (("--bucket", "0s"), "--bucket"),
        (("--load", "0"), "--load 0"),
        (("--profile", "gpu"), "article"),
        (("--slo-ttft", "soon"), "--slo-ttft"),
        (("--attempts-within", "x"), "--attempts-within"),
    ],
)
def test_bound_when_a_word_is_wrong_then_one_line_says_what_is_allowed(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Exit code 2, one line, no traceback."""
    done = run("bound", "azure-conv", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("tokenweir: ")
    assert expected in line


def test_bound_when_the_solver_is_missing_then_one_line_says_what_to_install() -> None:
    """The knapsack does without it."""
    hidden = "import sys; sys.modules['highspy'] = None"
    done = run(*QUICK, "--level", "L", before=hidden)
    assert done.returncode == 2
    assert "tokenweir[study]" in done.stderr.strip().splitlines()[-1]
    assert run(*QUICK, "--level", "knapsack", before=hidden).returncode == 0


@pytest.mark.integration
def test_bound_when_interrupted_while_solving_then_it_ends_without_traceback(
    tmp_path: Path,
) -> None:
    """Ctrl-C stops the solver; nothing is printed to stdout."""
    # The solver tells by a file that it runs, which saves the test from guessing when.
    mark = tmp_path / "solving"
    code = (
        "import pathlib, highspy\n"
        "begin = highspy.Highs.startSolve\n"
        "def started(self):\n"
        "    thread = begin(self)\n"
        f"    pathlib.Path({str(mark)!r}).touch()\n"
        "    return thread\n"
        "highspy.Highs.startSolve = started\n"
        "from tokenweir.cli import main\n"
        "main()\n"
    )
    arguments = ("bound", "article-overload", "--level", "L", "--bucket", "250ms", "--json")
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually_sync(mark.exists, within_s=60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def test_replay_when_the_workload_is_drawn_then_every_seed_has_its_own_bound() -> None:
    """Two seeds: the mean of what each gives alone, and an interval."""
    arguments = ("replay", "article-overload", "--load", "recorded", "--requests", "500", "--bound")
    document = json.loads(run(*arguments, "--seeds", "2", "--json").stdout)
    (row,) = document["rows"]
    assert row["seeds"] == 2
    assert row["ci95"]["efficiency_tokens"] > 0
    from tokenweir.cli.study_options import wishes_from
    from tokenweir.sim.results import Slo
    from tokenweir.study.bound.efficiency import yardsticks_for
    from tokenweir.study.plan import experiment_from
    from tokenweir.study.replay import prepared_seeds

    experiment = experiment_from(wishes_from(slo=Slo()))
    ready = prepared_seeds("article-overload", experiment, seeds=[1, 2], load=None, requests=500)
    assert ready[0].arrivals != ready[1].arrivals
    figures = [
        yardstick.bound.figures["tokens"].value
        for yardstick in yardsticks_for(experiment, [replay.arrivals for replay in ready])
    ]
    assert row["ours"]["bound"]["tokens"] == pytest.approx(sum(figures) / 2, abs=1e-6)
    shown = run(*arguments, "--seeds", "2").stdout
    assert "±" in shown
    assert "mean of 2 seeds" in shown
