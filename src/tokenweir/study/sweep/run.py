"""In which order are the jobs of a sweep done, and what are its rows?

First the runs that limits are tuned by, all of them on the first seed; then every cell with every
contender and seed, and the bound of each cell below capacity, which tells how much must be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

from tokenweir.study.bound.bound import KINDS
from tokenweir.study.knobs import LIMIT_GRID, between
from tokenweir.study.parallel import map_jobs
from tokenweir.study.plan import is_drawn
from tokenweir.study.statistics import intervals_of
from tokenweir.study.sweep.contenders import Contender
from tokenweir.study.sweep.measure import BOUND, Figures, Job, measure, workload_facts
from tokenweir.study.sweep.plan import Cell, SweepPlan
from tokenweir.study.sweep.store import Store

__all__ = [
    "best_limits",
    "bound_jobs",
    "cell_jobs",
    "do_jobs",
    "refining_jobs",
    "sweep_bounds",
    "sweep_rows",
    "sweep_workloads",
    "tuning_jobs",
]

# Policy, trace and profile.
Workload = tuple[str, str, str]
Limits = dict[Workload, int]

# Limits tried between two neighbours of the grid.
_BETWEEN = 4


def do_jobs(
    jobs: Iterable[Job],
    store: Store,
    *,
    processes: int,
    backend: str | None = None,
    on_job: Callable[[], None] = lambda: None,
) -> None:
    """Do what is missing, several jobs at a time.

    Args:
        jobs: All that is wanted.
        store: Which of it there is already; takes in what ends.
        processes: Jobs at once.
        backend: See ``map_jobs``.
        on_job: Called after each.
    """
    missing = store.missing(jobs)
    with closing(map_jobs(measure, missing, processes=processes, backend=backend)) as ended:
        for job, figures in zip(missing, ended, strict=True):
            store.add(job, figures)
            on_job()


def _job(plan: SweepPlan, cell: Cell, *, policy: str) -> Callable[..., Job]:
    return partial(
        Job,
        cell=cell,
        policy=policy,
        requests=plan.requests,
        warmup=plan.warmup,
        cooldown=plan.cooldown,
        wishes=plan.wishes,
    )


def tuning_jobs(plan: SweepPlan) -> list[Job]:
    """Return the runs of every limit of the grids."""
    return [
        job
        for contender in plan.contenders
        if contender.is_tuned
        for workload in plan.workloads()
        for job in _tries(plan, (contender.policy, *workload), limits=LIMIT_GRID)
    ]


def refining_jobs(plan: SweepPlan, store: Store) -> list[Job]:
    """Return the runs of limits near the best of each grid, of those that are known."""
    return [
        job
        for workload, limit in _best(_scores_of(plan, store, jobs=tuning_jobs(plan))).items()
        for job in _tries(plan, workload, limits=between(LIMIT_GRID, limit, count=_BETWEEN))
    ]


def _tries(plan: SweepPlan, workload: Workload, *, limits: Sequence[int]) -> list[Job]:
    policy, trace, profile = workload
    requests = plan.tuning_requests
    if plan.requests is not None:
        requests = min(requests, plan.requests)
    return [
        _job(plan, Cell(trace, profile, load), policy=policy)(
            setting=(("limit", limit),), seed=plan.seeds[0], requests=requests
        )
        for load in plan.tuning_loads
        for limit in limits
    ]


def best_limits(plan: SweepPlan, store: Store) -> tuple[Limits, list[dict[str, Any]]]:
    """Return the best limit of each tuned contender and workload, and a row per limit tried.

    A limit's score is the mean over loads of its requests and tokens of goodput, each relative to
    the best limit at that load: a load with more to gain does not count for more.
    """
    jobs = tuning_jobs(plan) + refining_jobs(plan, store)
    scored = _scores_of(plan, store, jobs=jobs)
    limits = _best(scored)
    rows = [
        {
            "policy": policy,
            "trace": trace,
            "profile": profile,
            "limit": limit,
            "score": round(score, 6),
            "is_best": limit == limits[policy, trace, profile],
        }
        for (policy, trace, profile), scores in scored.items()
        for limit, score in sorted(scores.items())
    ]
    return limits, rows


def _best(scored: Mapping[Workload, dict[int, float]]) -> Limits:
    return {
        workload: max(scores, key=lambda limit: (scores[limit], -limit))
        for workload, scores in scored.items()
        if scores
    }


def _scores_of(
    plan: SweepPlan, store: Store, *, jobs: Sequence[Job]
) -> dict[Workload, dict[int, float]]:
    found: dict[Workload, dict[float, dict[int, Figures]]] = {}
    for job in jobs:
        figures = store.get(job)
        if figures is not None:
            loads = found.setdefault((job.policy, job.cell.trace, job.cell.profile), {})
            loads.setdefault(job.cell.load, {})[int(job.setting[0][1])] = figures
    return {
        workload: _scores(list(loads.values()))
        for workload, loads in found.items()
        if len(loads) == len(plan.tuning_loads)
    }


def _scores(loads: Sequence[dict[int, Figures]]) -> dict[int, float]:
    tried = [limit for limit in loads[0] if all(limit in load for load in loads)]
    scores = dict.fromkeys(tried, 0.0)
    for load in loads:
        for name in ("goodput_requests", "goodput_tokens"):
            best = max(figures[name] for figures in load.values()) or 1.0
            for limit in tried:
                scores[limit] += load[limit][name] / best / len(loads) / 2
    return scores


def cell_jobs(plan: SweepPlan, contender: Contender, *, cell: Cell, limits: Limits) -> list[Job]:
    """Return one contender's runs of one cell, one per seed."""
    setting = contender.setting
    if contender.is_tuned:
        limit = limits.get((contender.policy, cell.trace, cell.profile))
        if limit is None:
            return []
        setting = (("limit", limit),)
    return [_job(plan, cell, policy=contender.policy)(setting=setting, seed=s) for s in plan.seeds]


def bound_jobs(plan: SweepPlan) -> list[Job]:
    """Return the bounds that are asked for: of every cell below capacity.

    Seeds of a recorded trace have the same requests, so that one bound serves all.
    """
    return [
        _job(plan, cell, policy=BOUND)(setting=(), seed=seed)
        for cell in plan.cells()
        if cell.load < 1
        for seed in (plan.seeds if is_drawn(cell.trace) else plan.seeds[:1])
    ]


def sweep_bounds(plan: SweepPlan, store: Store) -> list[dict[str, Any]]:
    """Return a row per bounded cell, means over its seeds, of those that have all ended."""
    by_cell: dict[Cell, list[Figures | None]] = {}
    for job in bound_jobs(plan):
        by_cell.setdefault(job.cell, []).append(store.get(job))
    return [
        {
            **asdict(cell),
            "level": known[0]["level"],
            **{k: round(sum(f[k] for f in known) / len(known), 6) for k in KINDS},
        }
        for cell, figures in by_cell.items()
        if len(known := [f for f in figures if f is not None]) == len(figures)
    ]


def sweep_workloads(plan: SweepPlan) -> list[dict[str, Any]]:
    """Return a row per workload: the engine's capacity for it, and which resource binds."""
    rows = []
    for trace, profile in plan.workloads():
        job = _job(plan, Cell(trace, profile, plan.loads[0]), policy=BOUND)
        facts = workload_facts(job(setting=(), seed=plan.seeds[0]))
        rows.append({"trace": trace, "profile": profile, **facts})
    return rows


def sweep_rows(plan: SweepPlan, store: Store, *, limits: Limits) -> list[dict[str, Any]]:
    """Return a row per cell and contender, of those whose runs have all ended."""
    rows = []
    for cell in plan.cells():
        for contender in plan.contenders:
            jobs = cell_jobs(plan, contender, cell=cell, limits=limits)
            runs: list[Any] = [figures for job in jobs if (figures := store.get(job)) is not None]
            if not jobs or len(runs) < len(jobs):
                continue
            intervals = intervals_of(runs)
            rows.append({
                "trace": cell.trace,
                "profile": cell.profile,
                "load": cell.load,
                "policy": contender.name,
                "setting": dict(jobs[0].setting),
                "figures": {
                    n: None if i is None else round(i.mean, 6) for n, i in intervals.items()
                },
                "ci95": {
                    n: None if i is None or i.half is None else round(i.half, 6)
                    for n, i in intervals.items()
                },
            })
    return rows
