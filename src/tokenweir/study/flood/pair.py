"""What does the flood in a recorded trace cost the other tenants?

Rule: each trace is run as it is, and again without the tenant that floods in it; the others'
requests, times, declarations and lengths are the same in both, so that each refusal more is the
flood's doing. Load is that of the whole trace, as a multiple of the engine's capacity on its mix;
``recorded`` leaves the trace's own times. The run without the flood is at the same times, not at
the same load.
Figures: for each of the others the share refused and the goodput, with and without. A refusal more
than one in a hundred can only be told of who sent a hundred requests; of who sent fewer one request
more is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import declared_maxima
from tokenweir.study.experiment import Experiment, run_experiment
from tokenweir.study.flood.quiet import tenant_figures
from tokenweir.study.parallel import map_jobs
from tokenweir.study.plan import trace_from
from tokenweir.study.replay import prepared

__all__ = ["FLOODS", "Cell", "cells_from", "pair_rows"]

# Trace -> the tenant that floods in it.
FLOODS: dict[str, str] = {"servegen-cheap": "c057", "servegen-costly": "c042"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One trace on one engine at one load, None for recorded times."""

    trace: str
    profile: str
    load: float | None


def cells_from(traces: str, profiles: str, *, loads: Sequence[float | None]) -> list[Cell]:
    """Return every combination of comma-separated traces and profiles, and of loads.

    Raises:
        ConfigError: In a trace nobody is known to flood, or a profile is unknown.
    """
    names = [name.strip() for name in traces.split(",")]
    for name in names:
        if name not in FLOODS:
            raise ConfigError(
                f"in trace {name!r} nobody is known to flood, allowed: {', '.join(FLOODS)}"
            )
    engines = [name.strip() for name in profiles.split(",")]
    for name in engines:
        profile(name)
    return [Cell(name, engine, load) for name in names for engine in engines for load in loads]


def pair_rows(
    experiment: Experiment,
    cells: Sequence[Cell],
    *,
    seeds: Sequence[int],
    requests: int | None = None,
    processes: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every cell with and without its flood.

    Args:
        experiment: Policy and SLO; the engine is the cell's.
        cells: What to run.
        seeds: Of the declared maxima; counts are summed over them.
        requests: Only the first so many, None for all.
        processes: Runs at once; the result does not depend on it.
        on_run: Called after each run.

    Returns:
        A row per cell.
    """
    jobs = [(cell, seed, has) for cell in cells for seed in seeds for has in (True, False)]
    run = partial(_measured, experiment=experiment, requests=requests)
    found: dict[tuple[Cell, bool], list[dict[str, Any]]] = {}
    with closing(map_jobs(run, jobs, processes=processes)) as ended:
        for (cell, _, has_flood), figures in zip(jobs, ended, strict=True):
            found.setdefault((cell, has_flood), []).append(figures)
            on_run()
    return [_row(cell, beside=found[cell, True], without=found[cell, False]) for cell in cells]


def _measured(
    job: tuple[Cell, int, bool], *, experiment: Experiment, requests: int | None
) -> dict[str, Any]:
    cell, seed, has_flood = job
    engine = replace(experiment, engine=profile(cell.profile))
    replay = prepared(trace_from(cell.trace), engine, load=cell.load, requests=requests)
    flooder = FLOODS[cell.trace]
    if not any(arrival.tenant == flooder for arrival in replay.arrivals):
        raise ConfigError(
            f"--requests {requests} ends before the flood of {cell.trace}, allowed: more"
        )
    declared = declared_maxima(replay.arrivals, experiment.declared, seed=seed)
    kept = [
        number
        for number, arrival in enumerate(replay.arrivals)
        if has_flood or arrival.tenant != flooder
    ]
    arrivals = tuple(replay.arrivals[number] for number in kept)
    record = run_experiment(
        replace(engine, arrivals=arrivals),
        seed=seed,
        declared=[declared[number] for number in kept],
    )
    return {
        "load": replay.load,
        "load_kept": _load(arrivals, engine, span_ns=replay.arrivals[-1].arrival_ns),
        "tenants": tenant_figures(record, engine),
    }


def _load(arrivals: Sequence[Arrival], experiment: Experiment, *, span_ns: int) -> float:
    """Return the engine time asked for, over the time of the whole trace."""
    engine = experiment.engine
    return sum(engine.request_ns(a.prompt_tokens, a.output_tokens) for a in arrivals) / span_ns


_SUMMED = ("requests", "tokens", "refused", "good", "good_tokens")


def _summed(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts of each tenant, added up over seeds."""
    return {
        tenant: {key: sum(run["tenants"][tenant][key] for run in runs) for key in _SUMMED}
        for tenant in runs[0]["tenants"]
    }


def _row(
    cell: Cell, *, beside: Sequence[dict[str, Any]], without: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    flooder = FLOODS[cell.trace]
    with_flood, alone = _summed(beside), _summed(without)
    others = [tenant for tenant in alone if tenant != flooder]
    tenants = [
        _tenant(name, beside=with_flood[name], alone=alone[name], seeds=len(beside))
        for name in others
    ]
    tenants.sort(key=lambda row: (-row["refused_more"], row["tenant"]))
    return {
        "trace": cell.trace,
        "profile": cell.profile,
        "asked_load": "recorded" if cell.load is None else cell.load,
        "load": round(beside[0]["load"], 6),
        "load_without": round(without[0]["load_kept"], 6),
        "flooder": {"tenant": flooder, **_shares([with_flood[flooder]])},
        "others": _shares([with_flood[name] for name in others]),
        "others_without": _shares([alone[name] for name in others]),
        "refused_more_max": tenants[0]["refused_more"],
        "refused_more_tenant": tenants[0]["tenant"],
        "tenants_harmed": sum(row["is_harmed"] for row in tenants),
        "tenants": tenants,
    }


def _tenant(
    name: str, *, beside: dict[str, int], alone: dict[str, int], seeds: int
) -> dict[str, Any]:
    more = (beside["refused"] - alone["refused"]) / beside["requests"]
    # Each run has one request of grace where a hundredth is less than one.
    allowed = max(0.01, seeds / beside["requests"])
    return {
        "tenant": name,
        "requests": beside["requests"] // seeds,
        "refused_fraction": round(beside["refused"] / beside["requests"], 6),
        "refused_fraction_without": round(alone["refused"] / alone["requests"], 6),
        "refused_more": round(more, 6),
        "goodput": round(beside["good"] / beside["requests"], 6),
        "goodput_without": round(alone["good"] / alone["requests"], 6),
        "is_harmed": more > allowed,
    }


def _shares(rows: Sequence[dict[str, int]]) -> dict[str, float]:
    total = {key: sum(row[key] for row in rows) for key in _SUMMED}
    return {
        "requests": total["requests"],
        "refused_fraction": round(total["refused"] / total["requests"], 6),
        "goodput": round(total["good"] / total["requests"], 6),
        "goodput_tokens": round(total["good_tokens"] / total["tokens"], 6),
    }
