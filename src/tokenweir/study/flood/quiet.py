"""How long does a quiet tenant wait for its first token beside one that floods?

Rule: three runs on the same requests of the quiet tenant: alone; beside a flood; beside the same
flood where the policy bounds nothing of what waits to be read inside the engine, so that turns are
taken before it only. Both tenants' requests are Poisson with the article's lengths, each by a seed
of its own.
Figures: the quiet tenant's times to the first token and share of good requests; the flooding one's
goodput, which is what the quiet one's comfort may not cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.core.guards import GuardConfig
from tokenweir.core.units import NS_PER_S
from tokenweir.sim.results import is_good, quantile_s
from tokenweir.sim.scenario import Record
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import article_workload
from tokenweir.study.experiment import Experiment, mean_of, run_experiment
from tokenweir.study.parallel import map_jobs

__all__ = ["CASES", "FLOODER", "QUIET", "Neighbours", "quiet_rows", "tenant_figures"]

QUIET, FLOODER = "quiet", "flooder"
# Seeds of the two tenants' requests must not meet.
_QUIET_SEEDS_FROM = 100_000
_RATE_MAX = 10_000.0
_SPAN_S_MAX = 3_600.0
# As long as a first token may take at all: no bound inside the engine.
_UNBOUNDED = GuardConfig(prefill_ns_max=3_600 * NS_PER_S)

# Name -> (whether the flood comes, what guards the engine).
CASES: dict[str, tuple[bool, GuardConfig]] = {
    "alone": (False, GuardConfig()),
    "beside the flood": (True, GuardConfig()),
    "unbounded in the engine": (True, _UNBOUNDED),
}


class Neighbours:
    """Rates of the two tenants."""

    __slots__ = ("flood_rps", "quiet_rps", "span_s")

    def __init__(self, *, flood_rps: float, quiet_rps: float, span_s: float) -> None:
        """Keep the rates.

        Raises:
            ConfigError: One is out of range.
        """
        for name, rate in (("--flood", flood_rps), ("--quiet", quiet_rps)):
            if not 0 < rate <= _RATE_MAX:
                raise ConfigError(
                    f"{name} {rate:g} is not allowed, allowed: above 0 up to {_RATE_MAX:,.0f}"
                )
        if not 0 < span_s <= _SPAN_S_MAX:
            raise ConfigError(
                f"--for {span_s:g}s is not allowed, allowed: above 0 up to {_SPAN_S_MAX:,.0f}s"
            )
        self.flood_rps, self.quiet_rps, self.span_s = flood_rps, quiet_rps, span_s

    def arrivals(self, *, seed: int, has_flood: bool) -> tuple[Arrival, ...]:
        """Return the requests of a run, by time.

        Raises:
            ConfigError: The quiet tenant sends nothing.
        """
        quiet = article_workload(((self.span_s, self.quiet_rps),), seed=_QUIET_SEEDS_FROM + seed)
        if not quiet:
            raise ConfigError(
                f"--quiet {self.quiet_rps:g} sends nothing in {self.span_s:g} s, allowed: more"
            )
        flood = article_workload(((self.span_s, self.flood_rps),), seed=seed) if has_flood else []
        named = [replace(arrival, tenant=QUIET) for arrival in quiet]
        named += [replace(arrival, tenant=FLOODER) for arrival in flood]
        return tuple(sorted(named, key=lambda arrival: arrival.arrival_ns))


def quiet_rows(
    experiment: Experiment,
    neighbours: Neighbours,
    *,
    seeds: Sequence[int],
    processes: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every case with every seed.

    Args:
        experiment: Policy and engine.
        neighbours: Who sends how much.
        seeds: Of every random stream; the same for all cases.
        processes: Runs at once; the result does not depend on it.
        on_run: Called after each run.

    Returns:
        A row per case: ``mean`` of its figures, and those of each seed in ``runs``.
    """
    jobs = [(case, seed) for case in CASES for seed in seeds]
    run = partial(_measured, experiment=experiment, neighbours=neighbours)
    measured = []
    with closing(map_jobs(run, jobs, processes=processes)) as ended:
        for figures in ended:
            measured.append(figures)
            on_run()
    rows = []
    for number, case in enumerate(CASES):
        mine = measured[number * len(seeds) : (number + 1) * len(seeds)]
        rows.append({"case": case, "seeds": len(seeds), "mean": mean_of(mine), "runs": mine})
    return rows


def _measured(
    job: tuple[str, int], *, experiment: Experiment, neighbours: Neighbours
) -> dict[str, Any]:
    case, seed = job
    has_flood, guards = CASES[case]
    arrivals = neighbours.arrivals(seed=seed, has_flood=has_flood)
    record = run_experiment(replace(experiment, arrivals=arrivals, guards=guards), seed=seed)
    by_tenant = tenant_figures(record, experiment)
    return {
        "quiet": by_tenant[QUIET],
        "flooder": by_tenant.get(FLOODER),
        "preemptions": record.preemptions,
    }


def tenant_figures(record: Record, experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return the figures of each tenant of a run of clients that do not come back."""
    arrivals, engine = record.scenario.arrivals, record.scenario.profile
    found: dict[str, dict[str, Any]] = {}
    times: dict[str, list[int]] = {}
    for attempt in record.attempts:
        tenant = arrivals[attempt.index].tenant
        row = found.setdefault(tenant, dict.fromkeys(_COUNTS, 0))
        tokens = attempt.prompt_tokens + attempt.output_tokens
        is_kept = is_good(attempt, experiment.slo, engine=engine)
        row["requests"] += 1
        row["tokens"] += tokens
        row["refused"] += not attempt.is_dispatched
        row["good"] += is_kept
        row["good_tokens"] += tokens if is_kept else 0
        if attempt.first_ns is not None:
            times.setdefault(tenant, []).append(attempt.first_ns - attempt.arrive_ns)
    for tenant, row in found.items():
        row["refused_fraction"] = row["refused"] / row["requests"]
        row["goodput"] = row["good"] / row["requests"]
        row["goodput_tokens"] = row["good_tokens"] / row["tokens"]
        row["ttft_p50_s"] = quantile_s(times.get(tenant, []), 0.5)
        row["ttft_p99_s"] = quantile_s(times.get(tenant, []), 0.99)
    return found


_COUNTS = ("requests", "tokens", "refused", "good", "good_tokens")
