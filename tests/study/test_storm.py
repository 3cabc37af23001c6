"""Retries after a spike: the figures, and what pacing does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos
from tokenweir.sim.attempt import Attempt, Fate
from tokenweir.sim.clients import client_model
from tokenweir.study.experiment import Experiment
from tokenweir.study.plan import Slo, Wishes, experiment_from
from tokenweir.study.storm.figures import _backlog_tokens, _emptied_ns, dispersion
from tokenweir.study.storm.run import Spike, storm_rows
from tokenweir.study.storm.tables import verdicts

S = NS_PER_S


def default_experiment(retry: str = "sdks") -> Experiment:
    """Return the default policy on the article's engine, with declared maxima of every kind."""
    wishes = Wishes(
        profile="article",
        queue="fifo",
        declared="mix",
        retry=retry,
        retries=2,
        timeout_ns=None,
        wait_items=1_000,
        wait_ns=5 * S,
        slo=Slo(),
        drains=True,
        checks=True,
    )
    return replace(experiment_from(wishes), policy="predictive")


def attempt(
    arrive_s: float, *, queued_s: float = 0.0, first_s: float | None = None, refused: bool = False
) -> Attempt:
    """Build an attempt with a prompt of 100 tokens."""
    made = Attempt(0, 0, arrive_ns=int(arrive_s * S), lengths=(100, 10, 10))
    made.queue_wait_ns = int(queued_s * S)
    made.is_dispatched = not refused
    if refused:
        made.fate, made.end_ns = Fate.REFUSED, made.arrive_ns + made.queue_wait_ns
    if first_s is not None:
        made.first_ns = int(first_s * S)
        made.end_ns = made.first_ns + S
    return made


def test_dispersion_when_arrivals_are_even_then_is_nought_and_in_bursts_is_large() -> None:
    """One in each tenth of a second, or ten in every tenth one; what is outside does not count."""
    even: list[Nanos] = [10 * S + i * S // 10 for i in range(200)]
    assert dispersion(even, since_ns=10 * S) == 0.0
    bursts = [10 * S + i // 10 * S for i in range(200)]
    assert dispersion(bursts, since_ns=10 * S) == pytest.approx(9.0, rel=0.02)
    assert dispersion([S, 99 * S], since_ns=10 * S) == 0.0


def test_emptied_when_the_last_has_left_the_queue_then_is_the_first_moment_without_any() -> None:
    """Refused at once or after waiting, dispatched at once or later; a later queue is another."""
    attempts = [
        attempt(9.0, queued_s=2.0, first_s=11.5),
        attempt(10.5, queued_s=2.0, refused=True),
        attempt(11.0, refused=True),
        attempt(12.0, first_s=14.0),
        attempt(20.0, queued_s=1.0, first_s=21.5),
    ]
    assert _emptied_ns(attempts, 10 * S) == int(12.5 * S)
    assert _emptied_ns(attempts, 15 * S) == 15 * S


def test_backlog_when_prompts_are_unread_then_counts_them_queued_or_not() -> None:
    """Who has a first token, was refused or is still to come does not count."""
    attempts = [
        attempt(9.0, queued_s=2.0, first_s=11.5),
        attempt(9.0, first_s=11.0),
        attempt(9.0, first_s=9.5),
        attempt(9.0, refused=True),
        attempt(11.0, first_s=12.0),
    ]
    assert _backlog_tokens(attempts, 10 * S) == 200


@pytest.fixture(scope="module")
def storm() -> list[dict[str, Any]]:
    """The retry storm with two seeds."""
    return storm_rows(default_experiment(), Spike(until_s=70.0), seeds=[1, 2])


@pytest.mark.case("CASE-F7")
def test_spike_when_it_ends_then_the_queue_is_gone_within_two_seconds(
    storm: list[dict[str, Any]],
) -> None:
    """30, 140 and 30 requests a second; nothing is preempted."""
    without = storm[0]
    assert without["case"] == "no retries"
    for run in without["runs"]:
        assert run["emptied_s"] <= 2.0
        assert run["preemptions"] <= 1e-4 * run["unique"]


def test_storm_when_returns_are_paced_then_every_target_holds_in_every_run(
    storm: list[dict[str, Any]],
) -> None:
    """Libraries as they are, with wrappers that multiply attempts."""
    for found in verdicts(storm):
        assert found["holds"] == found["runs"], found["target"]


def test_storm_when_each_is_told_the_wait_alone_then_they_come_back_together(
    storm: list[dict[str, Any]],
) -> None:
    """What pacing is for: more attempts, in clumps, for less."""
    told, paced = storm[1]["mean"], storm[2]["mean"]
    assert told["attempts_per_unique"] > 1.3 * paced["attempts_per_unique"]
    assert told["dispersion_all"] > 3 * paced["dispersion_all"]
    assert told["goodput_user"] < paced["goodput_user"]
    assert told["goodput_unique"] < paced["goodput_unique"]


def test_storm_when_clients_heed_nothing_then_the_budget_bounds_them() -> None:
    """A fixed second, ten times: most is refused for the budget or for its number."""
    clients = client_model("fixed", retries_max=10, timeout_ns=None)
    experiment = replace(default_experiment(), clients=clients)
    rows = storm_rows(experiment, Spike(until_s=50.0), seeds=[1])
    reasons = rows[2]["mean"]["refused_by_reason"]
    assert reasons["attempts_exhausted"] > 0
    assert reasons["retry_budget_exhausted"] > 0
    without, paced = rows[0]["mean"], rows[2]["mean"]
    assert paced["goodput_user"] >= 0.85 * without["goodput_user"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_rps": 0.0},
        {"base_rps": 200.0},
        {"peak_rps": 1e6},
        {"begins_s": 40.0},
        {"until_s": 1e6},
    ],
)
def test_spike_when_it_is_none_then_the_error_says_what_is_allowed(wrong: dict[str, float]) -> None:
    """One line that names what is allowed."""
    with pytest.raises(ConfigError, match="allowed: "):
        Spike(**wrong)
