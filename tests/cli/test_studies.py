"""compare, hysteresis and tune as a user runs them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.command import assert_one_line, run

COMPARE = (
    *("compare", "article-overload", "predictive", "token", "--load", "2"),
    *("--requests", "300", "--warmup", "100", "--cooldown", "50"),
)
CLIMB = ("hysteresis", "--hold", "10s", "--by", "0.5", "--policy", "predictive,none")

TUNE = (
    *("tune", "article-overload", "--policy", "concurrency", "--knobs", "wait", "--load", "2"),
    *("--requests", "300", "--warmup", "100", "--cooldown", "50"),
)


@lru_cache
def reported(arguments: tuple[str, ...]) -> tuple[str, str]:
    """Run a study once for all that look at it; return its JSON and its page."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        done = run(*arguments, "--json", "--html", str(file))
        assert done.returncode == 0, done.stderr
        return done.stdout, file.read_text("utf-8")


@pytest.mark.parametrize("arguments", [COMPARE, CLIMB, TUNE])
def test_study_when_run_twice_then_the_bytes_are_equal(arguments: tuple[str, ...]) -> None:
    """Same question, same answer, in one process or two, with a report and without."""
    document, _ = reported(arguments)
    assert run(*arguments, "--json", "--jobs", "1").stdout == document
    assert json.loads(document)


def test_compare_when_a_person_runs_it_then_differences_are_shown() -> None:
    """Figures of both, their difference, and whether it is more than chance."""
    done = run(*COMPARE)
    assert done.returncode == 0, done.stderr
    for word in ("goodput_tokens", "difference", "more than chance", "paired by stretches"):
        assert word in done.stdout


def test_tune_when_a_person_runs_it_then_the_held_out_figures_and_an_advice_are_shown() -> None:
    """Steps, held-out differences, one sentence."""
    done = run(*TUNE)
    assert done.returncode == 0, done.stderr
    for word in ("relative to the defaults", "held-out requests", "keep the defaults"):
        assert word in done.stdout


def test_hysteresis_when_a_person_runs_it_then_area_and_steps_are_shown() -> None:
    """Area by policy, goodput by load."""
    done = run(*CLIMB)
    assert done.returncode == 0, done.stderr
    for word in ("area", "predictive", "up / down"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("compare", "nowhere.csv", "token", "none"), "nowhere.csv"),
        (("compare", "azure-conv", "token", "token"), "named twice"),
        (("compare", "azure-conv", "token", "concurrency*"), "concurrency=64"),
        (("compare", "azure-conv", "token", "none", "--load", "0"), "--load 0"),
        (("compare", "azure-conv", "token", "none", "--profile", "gpu"), "article"),
        (("hysteresis", "nowhere.csv"), "nowhere.csv"),
        (("hysteresis", "--from", "3"), "--from 3"),
        (("hysteresis", "--hold", "60"), "--hold"),
        (("hysteresis", "--hold", "120m"), "--hold 7200s"),
        (("hysteresis", "--policy", "magic"), "none, concurrency, aimd"),
        (("hysteresis", "--retry", "often"), "none, fixed, exponential, obey"),
        (("hysteresis", "--jobs", "0"), "--jobs 0"),
        (("arena", "--fairness", "luck"), "vtc, sfq, round_robin, fcfs"),
        (("arena", "--seeds", "0"), "--seeds 0"),
        (("flood", "quiet", "--flood", "0"), "--flood 0"),
        (("flood", "quiet", "--for", "120m"), "--for 7200s"),
        (("flood", "pair", "--trace", "azure-conv"), "servegen-cheap, servegen-costly"),
        (("flood", "pair", "--load", "x"), "--load 'x'"),
        (("tune", "nowhere.csv"), "nowhere.csv"),
        (("tune", "azure-conv", "--knobs", "volume"), "headroom, lengths"),
        (("tune", "azure-conv", "--policy", "magic"), "none, concurrency, aimd"),
        (("tune", "azure-conv", "--hold-out", "0"), "--hold-out 0"),
        (("tune", "azure-conv", "--for", "fame"), "tokens, requests, both"),
        (("tune", "azure-conv", "--attainment", "2"), "--attainment 2"),
        (("tune", "azure-conv", "--load", "1,x"), "--load '1,x'"),
    ],
)
def test_study_when_a_word_is_wrong_then_one_line_says_what_is_allowed(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Exit code 2, one line, no traceback."""
    assert_one_line(run(*arguments), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        COMPARE,
        CLIMB,
        TUNE,
        ("arena", "--fairness", "vtc", "--seeds", "1"),
        ("flood", "quiet", "--for", "20s", "--seeds", "1"),
        (
            *("flood", "pair", "--trace", "servegen-costly", "--requests", "8500"),
            *("--profile", "8b-h100", "--load", "2"),
        ),
        (
            *("sweep", "--requests", "200", "--warmup", "100", "--cooldown", "50"),
            *("--load", "0.7,2", "--policy", "predictive,concurrency*", "--tune-requests", "100"),
        ),
    ],
)
def test_study_when_a_report_is_asked_for_then_it_says_what_was_run(
    arguments: tuple[str, ...],
) -> None:
    """One page with the command line and plots, beside what is printed."""
    document, page = reported(arguments)
    assert json.loads(document)
    assert f"<code>tokenweir {' '.join(arguments[:2])}" in page.replace("&#x27;", "'")
    assert "const PLOTS=[[{" in page


def test_study_when_the_report_has_no_place_then_one_line_says_so(tmp_path: Path) -> None:
    """Said before anything runs."""
    done = run(*COMPARE, "--html", str(tmp_path / "missing" / "report.html"))
    assert done.returncode == 2
    assert "--html" in done.stderr
