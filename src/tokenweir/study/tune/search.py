"""Which values of the knobs have the most goodput under an SLO?

Model: a setting's gain = mean over loads of its goodput relative to the defaults', in requests, in
tokens, or the mean of both; its shortfall = how far its attainment lies under what is asked for, at
the worst load. Both are measured on the first part of the trace only.
Rule: coordinate search. Knobs are turned one after the other; of a knob's values the one with the
least shortfall wins, among those the one with the most gain, and where that is less than
``GAIN_MIN`` better the knob stays as it was. It ends after a round in which nothing was turned.
Properties: deterministic; every step is a handful of independent runs; never worse than the
defaults on the part it is tuned on.
Trade-off: knobs that help only together are not found; a random search finds them, and noise too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.study.knobs import KNOBS, Setting, Value
from tokenweir.study.sweep.measure import Figures, Job, prepared_job

__all__ = ["GAIN_MIN", "OBJECTIVES", "ROUNDS_MAX", "Search", "Trial", "searched"]

GAIN_MIN = 0.002
ROUNDS_MAX = 4

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "tokens": ("goodput_tokens",),
    "requests": ("goodput_requests",),
    "both": ("goodput_requests", "goodput_tokens"),
}

# Does what is missing and returns the figures of every job, in order.
Measure = Callable[[Sequence[Job]], list[Figures]]


@dataclass(frozen=True, slots=True)
class Search:
    """What is tuned, and for what.

    Attributes:
        job: A run of the policy with its defaults on the part that is tuned on; load and seed
            are set by the search.
        knobs: Rows of ``KNOBS``, in the order in which they are turned.
        loads: Multiples of capacity.
        seeds: Of every random stream.
        objective: Row of ``OBJECTIVES``.
        attainment: Least SLO attainment of what is admitted, 0 to 1.
    """

    job: Job
    knobs: Sequence[str]
    loads: Sequence[float]
    seeds: Sequence[int]
    objective: str = "both"
    attainment: float = 0.98

    def __post_init__(self) -> None:
        """Check words and range."""
        if self.objective not in OBJECTIVES:
            raise ConfigError(
                f"--for {self.objective!r} is not allowed, allowed: {', '.join(OBJECTIVES)}"
            )
        if not 0 <= self.attainment <= 1:
            raise ConfigError(f"--attainment {self.attainment:g} is not allowed, allowed: 0 to 1")

    def jobs(self, setting: Setting) -> list[Job]:
        """Return the runs of a setting: every load with every seed."""
        return [
            replace(self.job, setting=setting, seed=seed, cell=replace(self.job.cell, load=load))
            for load in self.loads
            for seed in self.seeds
        ]


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting and how it did.

    Attributes:
        number: Of the round, from 1; 0 for the defaults.
        knob: That was turned, empty for the defaults.
        value: It was turned to.
        gain: See the module.
        shortfall: See the module.
        is_taken: Whether it became the setting to go on from.
    """

    number: int
    knob: str
    value: Value
    gain: float
    shortfall: float
    is_taken: bool


def searched(
    search: Search, *, measure: Measure, on_trials: Callable[[list[Trial]], None]
) -> Setting:
    """Return the best setting found, empty where that is the defaults.

    Args:
        search: What is tuned.
        measure: See ``Measure``.
        on_trials: Called with the trials of each step as soon as they are known.
    """
    experiment, _ = prepared_job(replace(search.job, setting=()))
    now: dict[str, Value] = {knob: KNOBS[knob].now(experiment) for knob in search.knobs}
    turned: dict[str, Value] = {}
    base = measure(search.jobs(()))
    best = _score(search, base, base=base)
    on_trials([Trial(0, "", "", *best, is_taken=True)])
    for number in range(1, ROUNDS_MAX + 1):
        is_changed = False
        for knob in search.knobs:
            values = [value for value in KNOBS[knob].grid if value != now[knob]]
            settings = [tuple({**turned, knob: value}.items()) for value in values]
            jobs = [search.jobs(setting) for setting in settings]
            figures = measure([job for some in jobs for job in some])
            size = len(base)
            scores = [
                _score(search, figures[i * size : (i + 1) * size], base=base)
                for i in range(len(values))
            ]
            winner = max(range(len(values)), key=lambda i: _rank(scores[i]))
            is_better = _is_better(scores[winner], best)
            on_trials([
                Trial(number, knob, value, *score, is_taken=is_better and i == winner)
                for i, (value, score) in enumerate(zip(values, scores, strict=True))
            ])
            if is_better:
                best, is_changed = scores[winner], True
                now[knob] = turned[knob] = values[winner]
        if not is_changed:
            break
    return tuple(turned.items())


def _score(
    search: Search, figures: Sequence[Figures], *, base: Sequence[Figures]
) -> tuple[float, float]:
    """Return (gain, shortfall)."""
    kinds = OBJECTIVES[search.objective]
    gains, shortfall = [], 0.0
    seeds = len(search.seeds)
    for i in range(0, len(base), seeds):
        ours, defaults = figures[i : i + seeds], base[i : i + seeds]
        for kind in kinds:
            gains.append(_total(ours, kind) / (_total(defaults, kind) or 1.0))
        known: list[float] = [f["attainment"] for f in ours if f["attainment"] is not None]
        attained = sum(known) / len(known) if known else 0.0
        shortfall = max(shortfall, search.attainment - attained)
    return round(sum(gains) / len(gains), 6), round(max(0.0, shortfall), 6)


def _total(figures: Sequence[Figures], kind: str) -> float:
    return sum(float(row[kind]) for row in figures)


def _rank(score: tuple[float, float]) -> Any:
    gain, shortfall = score
    return (-shortfall, gain)


def _is_better(score: tuple[float, float], best: tuple[float, float]) -> bool:
    if score[1] != best[1]:
        return score[1] < best[1]
    return score[0] >= best[0] + GAIN_MIN
