"""Which settings of a policy can be tuned, over which values?

A knob changes one setting of an experiment. Grids are coarse on purpose: what matters only in the
third digit is noise of the trace it was tuned on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from tokenweir.core.capacity import CapacityTest
from tokenweir.core.cost import Predicted
from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import LengthConfig, LengthMode
from tokenweir.core.policy import POLICIES, Policy, policy
from tokenweir.core.queues import ORDERINGS
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.study.experiment import Experiment

__all__ = [
    "KNOBS",
    "LIMIT_GRID",
    "Knob",
    "Setting",
    "Value",
    "between",
    "knobs_from",
    "limited_policies",
    "with_knobs",
]

# Name and value of each knob that is turned, as jobs and rows have them.
Value = float | str
Setting = tuple[tuple[str, Value], ...]

# Fields of capacity tests that are limits on requests; what has none depends on no such guess.
_LIMIT_FIELDS = ("in_flight_max", "waiting_max")
# Traces tell no classes: all of their requests are of this one.
_TRACED = Priority.P1
LIMIT_GRID: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting that can be tuned.

    Attributes:
        what: In words, with the unit.
        grid: Values tried; numbers ascending.
        fits: Whether a policy has it.
        now: Its value in an experiment.
        turned: The experiment with another value.
        needs_tenants: Whether it changes nothing where all requests are of one tenant.
    """

    what: str
    grid: tuple[Value, ...]
    fits: Callable[[Policy], bool]
    now: Callable[[Experiment], Value]
    turned: Callable[[Experiment, Any], Experiment]
    needs_tenants: bool = False


def _capacity(experiment: Experiment) -> CapacityTest:
    return experiment.capacity or policy(experiment.policy).capacity


def _limit_field(capacity: CapacityTest) -> str | None:
    return next((field for field in _LIMIT_FIELDS if hasattr(capacity, field)), None)


def limited_policies() -> list[str]:
    """Return the policies that have a limit to tune or to set."""
    return [name for name in POLICIES if KNOBS["limit"].fits(policy(name))]


def _with_capacity(experiment: Experiment, field: str, *, value: float) -> Experiment:
    changed: Any = replace(_capacity(experiment), **{field: value})  # type: ignore[type-var]  # all tests are dataclasses
    return replace(experiment, capacity=changed)


def _with_class_wait(experiment: Experiment, wait_ns: Nanos) -> Experiment:
    queue = experiment.queue
    limits = replace(queue.classes[_TRACED], wait_ns_max=wait_ns)
    return replace(experiment, queue=replace(queue, classes={**queue.classes, _TRACED: limits}))


KNOBS: dict[str, Knob] = {
    "limit": Knob(
        "requests in flight, or waiting in the engine",
        LIMIT_GRID,
        lambda policy: _limit_field(policy.capacity) is not None,
        lambda e: float(getattr(_capacity(e), _limit_field(_capacity(e)) or "")),
        lambda e, value: _with_capacity(e, _limit_field(_capacity(e)) or "", value=int(value)),
    ),
    "headroom": Knob(
        "share of the pool that may be promised",
        (0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99),
        lambda policy: hasattr(policy.capacity, "headroom_fraction"),
        lambda e: float(getattr(_capacity(e), "headroom_fraction", 0.0)),
        lambda e, value: _with_capacity(e, "headroom_fraction", value=value),
    ),
    "wait": Knob(
        "share of the first token's bound that may be waited",
        (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        # Guarded policies bound the first token itself.
        lambda policy: not policy.is_guarded,
        lambda e: e.queue.slo_fraction,
        lambda e, value: replace(e, queue=replace(e.queue, slo_fraction=value)),
    ),
    "lengths": Knob(
        "what predicted lengths promise",
        get_args(LengthMode),
        lambda policy: isinstance(policy.cost, Predicted),
        lambda e: e.length_mode or LengthConfig().mode,
        lambda e, value: replace(e, length_mode=value),
    ),
    "ordering": Knob(
        "which request of a tenant is next",
        tuple(ORDERINGS),
        lambda policy: True,
        lambda e: e.ordering,
        lambda e, value: replace(e, ordering=value),
    ),
    "backfill": Knob(
        "requests asked whether they may pass a head that waits for KV",
        (0, 4),
        lambda policy: policy.capacity.tracks_batch,
        lambda e: float(e.queue.backfill_max),
        lambda e, value: replace(e, queue=replace(e.queue, backfill_max=int(value))),
    ),
    "class_wait": Knob(
        "longest wait of class P1, s",
        (0.25, 0.5, 1.0, 2.0, 5.0, 10.0),
        lambda policy: True,
        lambda e: e.queue.wait_ns_max_of(_TRACED) / NS_PER_S,
        lambda e, value: _with_class_wait(e, round(value * NS_PER_S)),
    ),
    "weights": Knob(
        "power of what a tenant asks for, by which it weighs",
        (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0),
        lambda policy: True,
        lambda e: e.weights_power,
        lambda e, value: replace(e, weights_power=value),
        needs_tenants=True,
    ),
    "reading": Knob(
        "most work on prompts inside the engine, ms",
        (25, 50, 100, 200, 400, 800),
        lambda policy: policy.is_guarded,
        lambda e: e.guards.prefill_ns_max / NS_PER_MS,
        lambda e, value: replace(
            e, guards=replace(e.guards, prefill_ns_max=round(value * NS_PER_MS))
        ),
    ),
    "pace": Knob(
        "share of the pace's bound that may be used",
        (0.7, 0.8, 0.85, 0.9, 0.95, 1.0),
        lambda policy: policy.is_guarded,
        lambda e: e.guards.pace_fraction,
        lambda e, value: replace(e, guards=replace(e.guards, pace_fraction=value)),
    ),
    "first_token": Knob(
        "share of the first token's bound that may be used",
        (0.7, 0.8, 0.85, 0.9, 0.95, 1.0),
        lambda policy: policy.is_guarded,
        lambda e: e.guards.slo_fraction,
        lambda e, value: replace(e, guards=replace(e.guards, slo_fraction=value)),
    ),
}


def knobs_from(text: str, *, name: str, has_tenants: bool = True) -> list[str]:
    """Read ``all`` that fit a policy, or a comma-separated list of knobs.

    Args:
        text: As on the command line.
        name: The policy's.
        has_tenants: Whether there is more than one.

    Raises:
        ConfigError: One is unknown, does not fit policy or tenants, or is named twice.
    """
    chosen = policy(name)
    fitting = [
        knob
        for knob, row in KNOBS.items()
        if row.fits(chosen) and (has_tenants or not row.needs_tenants)
    ]
    words = fitting if text == "all" else [word.strip() for word in text.split(",")]
    for word in words:
        if word not in fitting or words.count(word) > 1:
            raise ConfigError(
                f"knob {word!r} is not allowed for policy {name}"
                f"{'' if has_tenants else ' and a single tenant'}, allowed, each once: "
                f"{', '.join(fitting)}"
            )
    return words


def with_knobs(experiment: Experiment, setting: Setting) -> Experiment:
    """Return an experiment, its policy chosen, with knobs turned.

    Raises:
        ConfigError: A knob does not fit the policy, or a value is out of range.
    """
    for name, value in setting:
        if name not in knobs_from("all", name=experiment.policy):
            knobs_from(name, name=experiment.policy)
        experiment = KNOBS[name].turned(experiment, value)
    return experiment


def between(grid: Sequence[int], best: int, *, count: int) -> list[int]:
    """Return whole numbers between the best of a grid and its neighbours, evenly by ratio."""
    place = grid.index(best)
    low, high = grid[max(0, place - 1)], grid[min(place + 1, len(grid) - 1)]
    values = [
        round(start * (end / start) ** (step / (count + 1)))
        for start, end in ((low, best), (best, high))
        for step in range(1, count + 1)
    ]
    return sorted(set(values) - set(grid))
