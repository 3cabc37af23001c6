"""Settings that can be tuned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.classes import CLASSES
from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import DEFAULT_POLICY, POLICIES, policy
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_S
from tokenweir.study.experiment import Experiment, admitter_of
from tokenweir.study.knobs import (
    KNOBS,
    LIMIT_GRID,
    between,
    knobs_from,
    limited_policies,
    with_knobs,
)


@pytest.mark.parametrize("name", KNOBS)
def test_knob_when_turned_to_each_value_then_the_experiment_has_it(name: str) -> None:
    """Every value of every grid is allowed, and read back as it was set."""
    knob = KNOBS[name]
    fitting = [row for row in POLICIES if knob.fits(policy(row))]
    assert fitting
    for row in fitting:
        for value in knob.grid:
            turned = with_knobs(Experiment(policy=row), ((name, value),))
            assert knob.now(turned) == value
    numbers = [value for value in knob.grid if not isinstance(value, str)]
    assert numbers == sorted(set(numbers))


def test_limited_policies_when_listed_then_each_takes_a_limit() -> None:
    """What counts requests can be told how many."""
    assert "concurrency" in limited_policies()
    assert DEFAULT_POLICY not in limited_policies()
    for name in limited_policies():
        turned = with_knobs(Experiment(policy=name), (("limit", 7),))
        assert KNOBS["limit"].now(turned) == 7


def test_with_knobs_when_two_are_turned_then_both_hold() -> None:
    """The second does not undo the first."""
    experiment = Experiment(policy=DEFAULT_POLICY)
    turned = with_knobs(experiment, (("headroom", 0.8), ("pace", 0.7)))
    assert KNOBS["headroom"].now(turned) == 0.8
    assert KNOBS["pace"].now(turned) == 0.7
    assert turned.guards.pace_fraction == 0.7
    assert turned.guards.slo_fraction == experiment.guards.slo_fraction
    assert with_knobs(experiment, ()) == experiment
    limited = with_knobs(replace(experiment, policy="concurrency"), (("limit", 7),))
    assert limited.capacity == Concurrency(in_flight_max=7)


@pytest.mark.parametrize("text", ["limit", "magic", "headroom,headroom", ""])
def test_knobs_when_one_does_not_fit_then_those_that_do_are_named(text: str) -> None:
    """Unknown, of another policy, or twice."""
    with pytest.raises(
        ConfigError,
        match="allowed, each once: headroom, lengths, ordering, backfill, class_wait, "
        "weights, reading, pace, first_token",
    ):
        knobs_from(text, name=DEFAULT_POLICY)
    with pytest.raises(ConfigError, match="allowed, each once"):
        with_knobs(Experiment(policy="none"), (("limit", 3),))


def test_weights_when_there_is_a_single_tenant_then_is_no_knob() -> None:
    """It would change nothing, run after run."""
    assert "weights" in knobs_from("all", name=DEFAULT_POLICY)
    assert "weights" not in knobs_from("all", name=DEFAULT_POLICY, has_tenants=False)
    with pytest.raises(ConfigError, match=r"'weights' .* policy predictive and a single tenant"):
        knobs_from("weights", name=DEFAULT_POLICY, has_tenants=False)


def test_class_wait_when_turned_then_only_the_class_of_traces_changes() -> None:
    """P1's longest wait; its other bounds and the other classes stay."""
    experiment = Experiment(policy=DEFAULT_POLICY)
    turned = with_knobs(experiment, (("class_wait", 0.5),)).queue
    assert turned.wait_ns_max_of(Priority.P1) == NS_PER_S // 2
    assert replace(turned, classes=experiment.queue.classes) == experiment.queue
    stays = {**turned.classes, Priority.P1: replace(CLASSES[Priority.P1])}
    assert stays == CLASSES
    assert replace(turned.classes[Priority.P1], wait_ns_max=None) == CLASSES[Priority.P1]


def test_weights_when_turned_then_the_admitter_has_them() -> None:
    """By what each tenant asks for, where that is known."""
    experiment = replace(Experiment(policy=DEFAULT_POLICY), asked=(("a", 300), ("b", 100)))
    tenants = admitter_of(with_knobs(experiment, (("weights", 1.0),)), seed=1).config.tenants
    assert (tenants.of("a").weight, tenants.of("b").weight, tenants.of("c").weight) == (
        1.5,
        0.5,
        1.0,
    )


@pytest.mark.parametrize("best", LIMIT_GRID)
def test_between_when_refined_then_new_values_lie_between_the_neighbours(best: int) -> None:
    """Nothing is tried twice, nothing outside the grid."""
    values = between(LIMIT_GRID, best, count=4)
    assert not set(values) & set(LIMIT_GRID)
    assert all(LIMIT_GRID[0] <= value <= LIMIT_GRID[-1] for value in values)
