"""The benchmarks run, and say what they measured beside what is to be reached."""

import json

import pytest

from bench import decision, simulation


def test_decision_when_run_small_then_counts_stay_and_every_target_has_a_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A seat given back is taken by one that waits, and each target is shown with its rounds."""
    pool = decision.Pool("8b-h100", live=4, queued=10)
    for _ in range(20):
        assert pool.counts() == (4, 10)
        pool.decide()
    pool.admitter.check_invariants()

    decision.main(["--live", "4", "--queued", "10", "--rounds", "2", "--decisions", "10", "--json"])

    figures = json.loads(capsys.readouterr().out)["figures"]
    assert [f["target"] for f in figures if f["target"] is not None] == [60, 300, 2]
    assert all(len(f["rounds"]) == 2 and f["value"] > 0 for f in figures)


def test_simulation_when_run_on_few_requests_then_shows_seconds_beside_the_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The replay is measured as a command of its own, and its target is printed."""
    simulation.main(["--only", "azure", "--requests", "20", "--rounds", "1"])

    shown = capsys.readouterr().out
    assert "Azure" in shown
    assert "<= 20" in shown


def test_simulation_when_commands_are_listed_then_the_article_runs_without_flaws_and_checks() -> (
    None
):
    """What the target is about is what is run."""
    assert {"--no-flaws", "--no-checks"} <= set(simulation.COMMANDS["article"].arguments)
