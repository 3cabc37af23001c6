"""How much of the goodput of the way up is missing on the way down?

Rule: for each load, u = share of the unique requests that arrive in its step on the way up and are
served well in any attempt, d = the same on the way down. Area = mean over loads of |u - d|. What
has no memory has 0; a queue that feeds on time-outs and retries stays down after the load has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenweir.core.units import NS_PER_S
from tokenweir.sim.results import is_good
from tokenweir.study.experiment import run_experiment
from tokenweir.study.hysteresis.stairs import Stairs, climbed
from tokenweir.study.knobs import with_knobs
from tokenweir.study.parallel import map_jobs
from tokenweir.study.plan import Wishes, experiment_from
from tokenweir.study.statistics import intervals_of
from tokenweir.study.sweep.contenders import Contender

__all__ = ["Climb", "climbs", "hysteresis_rows", "measured_climbs"]


@dataclass(frozen=True, slots=True)
class Climb:
    """One run up and down.

    Attributes:
        trace: Where lengths come from.
        contender: Policy and limit.
        stairs: Loads.
        seed: Of every random stream.
        wishes: Everything else.
    """

    trace: str
    contender: Contender
    stairs: Stairs
    seed: int
    wishes: Wishes


def climbs(
    contenders: Sequence[Contender],
    *,
    trace: str,
    stairs: Stairs,
    seeds: Sequence[int],
    wishes: Wishes,
) -> list[Climb]:
    """Return a run per policy and seed."""
    return [Climb(trace, c, stairs, seed, wishes) for c in contenders for seed in seeds]


def measured_climbs(
    runs: Sequence[Climb],
    *,
    processes: int,
    backend: str | None = None,
    on_run: Callable[[Climb, dict[str, Any]], None],
) -> None:
    """Do the runs and tell each one's figures as soon as they are known."""
    with closing(map_jobs(_measured, runs, processes=processes, backend=backend)) as ended:
        for run, figures in zip(runs, ended, strict=True):
            on_run(run, figures)


def _measured(climb: Climb) -> dict[str, Any]:
    experiment = replace(experiment_from(climb.wishes), policy=climb.contender.policy)
    experiment = with_knobs(experiment, climb.contender.setting)
    engine, stairs = experiment.engine, climb.stairs
    arrivals, capacity = climbed(stairs, engine, trace=climb.trace, seed=climb.seed)
    record = run_experiment(experiment, seed=climb.seed, workload=arrivals)
    good = np.zeros(len(arrivals), dtype=np.bool_)
    for attempt in record.attempts:
        good[attempt.index] |= is_good(attempt, experiment.slo, engine=engine)
    width_ns = int(stairs.seconds * NS_PER_S)
    step = np.array([a.arrival_ns for a in arrivals], dtype=np.int64) // width_ns
    count = 2 * len(stairs.loads)
    unique = np.bincount(step, minlength=count)
    shares = np.bincount(step, weights=good, minlength=count) / np.maximum(1, unique)
    up, down = shares[: len(stairs.loads)], shares[len(stairs.loads) :][::-1]
    return {
        "capacity_rps": capacity,
        "area": float(np.abs(up - down).mean()),
        "attempts_per_unique": len(record.attempts) / len(arrivals),
        **{f"up {load:g}": float(u) for load, u in zip(stairs.loads, up, strict=True)},
        **{f"down {load:g}": float(d) for load, d in zip(stairs.loads, down, strict=True)},
    }


def hysteresis_rows(
    measured: Iterable[tuple[Climb, dict[str, Any]]], *, stairs: Stairs
) -> list[dict[str, Any]]:
    """Return a row per policy over the seeds that have been measured.

    Returns:
        ``area`` and ``attempts_per_unique`` as mean and half of the 95 % interval, and ``steps``:
        load, goodput ``up`` and ``down``.
    """
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for climb, figures in measured:
        by_policy.setdefault(climb.contender.name, []).append(figures)
    rows = []
    for name, runs in by_policy.items():
        mean = {key: interval for key, interval in intervals_of(runs).items() if interval}
        row: dict[str, Any] = {"policy": name, "seeds": len(runs)}
        for figure in ("area", "attempts_per_unique", "capacity_rps"):
            half = mean[figure].half
            row[figure] = round(mean[figure].mean, 6)
            row[f"{figure}_ci95"] = None if half is None else round(half, 6)
        row["steps"] = [
            {
                "load": load,
                "up": round(mean[f"up {load:g}"].mean, 6),
                "down": round(mean[f"down {load:g}"].mean, 6),
            }
            for load in stairs.loads
        ]
        rows.append(row)
    return rows
