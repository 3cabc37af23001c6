"""How do the fairness rows serve the arena's tenants, beside what others measured of theirs?

Rule: 27 tenants' requests at their recorded times, on a profile that was fitted to the measured
first-come rows alone. Nothing is refused and waits have no bound that matters, as in what was
measured. That engine knew each request's length and let in what would fit to its end; here clients
declare it and the policy takes their word, so that rows differ in nothing but whose turn it is.
Seed 1 has the recorded times; others move each arrival by up to a second, which changes nothing but
chance: on one trace a median of 261 requests moves by a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FAIRNESS
from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo, quantile_s
from tokenweir.sim.traces import read_trace
from tokenweir.sim.workload import uniforms
from tokenweir.study.arena.fair import OUTPUT_UNITS, course_of, jain_by_window, worst_gap_units
from tokenweir.study.arena.served import Floats, Served, measured, served_of
from tokenweir.study.experiment import Experiment, mean_of, run_experiment
from tokenweir.study.parallel import map_jobs

__all__ = ["MEASURED_ROWS", "SMALL_BELOW", "arena_document", "arena_experiment", "rows_from"]

TRACE = "vtc-arena"
ENGINE = "7b-a10g"
# Requests of a tenant, below which the data's authors call it small.
SMALL_BELOW = 40
# Measured policies that ours correspond to; none of them refuses.
MEASURED_ROWS = ("fcfs", "vtc", "vtc_predict", "vtc_oracle")
# Longer than the run by far.
_WAIT_NS = 3_600 * NS_PER_S
_SHIFT_NS = NS_PER_S


def rows_from(text: str) -> list[str]:
    """Read ``all`` or a comma-separated list of fairness rows.

    Raises:
        ConfigError: One is unknown.
    """
    names = list(FAIRNESS) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FAIRNESS:
            raise ConfigError(f"unknown fairness {name!r}, allowed: all, {', '.join(FAIRNESS)}")
    # What all are compared with.
    return list(dict.fromkeys([*names, "fcfs"]))


def arena_document(
    fairness: Sequence[str],
    *,
    seeds: Sequence[int],
    processes: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run the rows and put them beside the measured ones.

    Args:
        fairness: Rows of ``FAIRNESS``, ``fcfs`` among them.
        seeds: See the rule; figures are means over them.
        processes: Runs at once; the result does not depend on it.
        on_run: Called after each run.

    Returns:
        ``rows``, each with ``fairness``, ``is_measured`` and its figures, ``runs`` among them;
        ``profile`` and its ``source``.
    """
    jobs = [(name, seed) for name in fairness for seed in seeds]
    found = []
    with closing(map_jobs(_simulated, jobs, processes=processes)) as ended:
        for figures in ended:
            found.append(figures)
            on_run()
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(fairness):
        mine = found[number * len(seeds) : (number + 1) * len(seeds)]
        rows.append({"fairness": name, "is_measured": False, **_mean(mine)})
    for name in MEASURED_ROWS:
        rows.append({"fairness": name, "is_measured": True, **_mean([_figures(measured(name))])})
    return {
        "trace": TRACE,
        "profile": ENGINE,
        "source": profile(ENGINE).source,
        "seeds": len(seeds),
        "rows": rows,
    }


def arena_experiment(fairness: str, *, seed: int) -> Experiment:
    """Return the run of one row."""
    arrivals = read_trace(TRACE)
    if seed > 1:
        shifts = uniforms(seed, "arrivals", size=(len(arrivals),)) * _SHIFT_NS
        moved = [
            replace(arrival, arrival_ns=arrival.arrival_ns + int(shift))
            for arrival, shift in zip(arrivals, shifts, strict=True)
        ]
        arrivals = sorted(moved, key=lambda arrival: arrival.arrival_ns)
    return Experiment(
        "predictive",
        arrivals=tuple(arrivals),
        declared="exact",
        length_mode="declared",
        drains=True,
        queue=QueueLimits(items_max=100_000, wait_ns_max=_WAIT_NS),
        engine=profile(ENGINE),
        fairness=fairness,
        ordering="fifo",
        # None is held to a pace: the measured engine knew no such bound.
        slo=replace(Slo(), ttft_ns=_WAIT_NS, tpot_ns=10 * NS_PER_S),
        checks=False,
    )


def _simulated(job: tuple[str, int]) -> dict[str, Any]:
    fairness, seed = job
    record = run_experiment(arena_experiment(fairness, seed=seed), seed=seed)
    return _figures(served_of(record))


def _mean(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean figures; what is listed by window and tenant is that of the first run."""
    apart = ("windows", "tenants")
    mean = mean_of([{k: v for k, v in run.items() if k not in apart} for run in runs])
    return {**mean, **{key: runs[0][key] for key in apart}, "runs": list(runs)}


def _figures(served: Served) -> dict[str, Any]:
    course = course_of(served)
    windows = jain_by_window(course)
    indexes = [index for _, index, _ in windows]
    small = served.of_small(SMALL_BELOW)
    bound = OUTPUT_UNITS * profile(ENGINE).kv_tokens
    span_s = float(served.end_s.max())
    return {
        "requests": len(served.tenants),
        "unserved": served.unserved,
        "ttft_p50_s": _quantile_s(served.ttft_s, 0.5),
        "ttft_p99_s": _quantile_s(served.ttft_s, 0.99),
        "small_requests": int(small.sum()),
        "small_ttft_p50_s": _quantile_s(served.ttft_s[small], 0.5),
        "small_ttft_p99_s": _quantile_s(served.ttft_s[small], 0.99),
        "tokens_per_s": float((served.prompts + served.outputs).sum()) / span_s,
        "span_s": span_s,
        "jain_mean": float(np.mean(indexes)) if indexes else None,
        "jain_min": min(indexes, default=None),
        "gap_u": worst_gap_units(course) / bound,
        "windows": [
            {"t_s": middle, "jain": round(index, 6), "backlogged": count}
            for middle, index, count in windows
        ],
        "tenants": _by_size(served),
    }


def _by_size(served: Served) -> list[dict[str, Any]]:
    """Return each tenant's requests and median TTFT, who sent most first."""
    names = np.array(served.tenants)
    rows = [
        {
            "tenant": tenant,
            "requests": int((names == tenant).sum()),
            "ttft_p50_s": _quantile_s(served.ttft_s[names == tenant], 0.5),
        }
        for tenant in sorted(set(served.tenants))
    ]
    return sorted(rows, key=lambda row: (-row["requests"], row["tenant"]))


def _quantile_s(values_s: Floats, q: float) -> float | None:
    return quantile_s((values_s * NS_PER_S).tolist(), q)
