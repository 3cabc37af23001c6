"""What does a sweep report, whether it ran to its end or was interrupted?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenweir.study.sweep.measure import Job
from tokenweir.study.sweep.plan import SweepPlan
from tokenweir.study.sweep.run import (
    best_limits,
    bound_jobs,
    cell_jobs,
    do_jobs,
    refining_jobs,
    sweep_bounds,
    sweep_rows,
    tuning_jobs,
)
from tokenweir.study.sweep.store import Store
from tokenweir.study.sweep.verdicts import judged_cells, verdicts_on

__all__ = ["measured_jobs", "run_sweep", "sweep_document"]


def measured_jobs(plan: SweepPlan, store: Store) -> list[Job]:
    """Return the runs of all cells, with the limits that have been tuned, and the bounds."""
    limits, _ = best_limits(plan, store)
    runs = [
        job
        for cell in plan.cells()
        for contender in plan.contenders
        for job in cell_jobs(plan, contender, cell=cell, limits=limits)
    ]
    return runs + bound_jobs(plan)


def run_sweep(
    plan: SweepPlan,
    store: Store,
    *,
    processes: int,
    backend: str | None = None,
    on_phase: Callable[[str, int], Callable[[], None]],
) -> None:
    """Do all that a sweep needs and that the store does not have yet.

    Args:
        plan: The sweep.
        store: Takes in what ends.
        processes: Jobs at once.
        backend: See ``map_jobs``.
        on_phase: Called with a name and the number of jobs; returns what to call after each.
    """
    phases: dict[str, Callable[[], Sequence[Job]]] = {
        "tuning": lambda: tuning_jobs(plan),
        "tuning closer": lambda: refining_jobs(plan, store),
        "runs": lambda: measured_jobs(plan, store),
    }
    for name, jobs in phases.items():
        missing = store.missing(jobs())
        if missing:
            on_job = on_phase(name, len(missing))
            do_jobs(missing, store, processes=processes, backend=backend, on_job=on_job)


def sweep_document(
    plan: SweepPlan, store: Store, *, workloads: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the JSON document of what has been measured, all of it or what there is."""
    limits, tuning = best_limits(plan, store)
    wishes = plan.wishes
    wanted = [*tuning_jobs(plan), *refining_jobs(plan, store), *measured_jobs(plan, store)]
    document: dict[str, Any] = {
        "plan": plan.name,
        "what": plan.what,
        "requests": plan.requests,
        "warmup": plan.warmup,
        "cooldown": plan.cooldown,
        "seeds": len(plan.seeds),
        "declared": wishes.declared,
        "ordering": wishes.ordering,
        "fairness": wishes.fairness,
        "slo": {
            "ttft_ns": wishes.slo.ttft_ns,
            "tpot_ns": wishes.slo.tpot_ns,
            "unloaded_ratio": wishes.slo.unloaded_ratio,
        },
        "policies": [contender.name for contender in plan.contenders],
        "is_complete": not store.missing(wanted),
        "workloads": workloads,
        "bounds": sweep_bounds(plan, store),
        "tuning": tuning,
        "rows": sweep_rows(plan, store, limits=limits),
    }
    document["cells"] = judged_cells(document)
    document["verdicts"] = verdicts_on(document["cells"])
    return document
