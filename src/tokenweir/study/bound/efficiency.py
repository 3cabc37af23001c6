"""How near did a run come to the bound?

Rule: efficiency = goodput per unique request / bound, once in requests and once in tokens. Both
count any attempt of a unique request, so the bound leaves room for the latest attempt that the
run's clients could make. A tenant's efficiency is its own goodput / its part of the solution
behind the bound; that solution is one of many, so a single tenant may exceed 1 and only the
efficiency over all tenants is one. It tells who got less than an all-knowing scheduler of the
whole would have given.
Trade-off: clients that obey advice may come back a minute later, which makes the bound loose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.sim.results import Slo, is_good, summary
from tokenweir.sim.reuse import least_unread_tokens
from tokenweir.sim.scenario import Record
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.bound import KINDS, Bound, bounds_of, tightest_level
from tokenweir.study.bound.requests import Requests, requests_from
from tokenweir.study.experiment import Experiment

__all__ = [
    "Yardstick",
    "attempts_span_ns",
    "requests_of",
    "summary_with_tenants",
    "with_efficiency",
    "yardstick_for",
    "yardsticks_for",
]

_GOODPUT = {"count": "goodput_unique", "tokens": "goodput_tokens"}


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What rows of runs on the same requests are measured by."""

    requests: Requests
    bound: Bound


def yardstick_for(
    experiment: Experiment, *, on_figure: Callable[[], None] = lambda: None
) -> Yardstick:
    """Return the tightest bound that fits an experiment's engine.

    Args:
        experiment: With the requests of a trace.
        on_figure: Called after each figure; there is one per kind.

    Raises:
        ConfigError: See ``bounds_of``.
    """
    requests = requests_of(experiment)
    level = tightest_level(experiment.engine)
    bounds = bounds_of(
        requests,
        experiment.engine,
        levels=[level],
        replicas=experiment.replicas,
        on_figure=on_figure,
    )
    return Yardstick(requests, bounds[level])


def yardsticks_for(
    experiment: Experiment,
    workloads: Sequence[tuple[Arrival, ...]],
    *,
    on_figure: Callable[[], None] = lambda: None,
) -> list[Yardstick]:
    """Return the bound of each workload; see ``yardstick_for``."""
    return [
        yardstick_for(replace(experiment, arrivals=arrivals), on_figure=on_figure)
        for arrivals in workloads
    ]


def requests_of(experiment: Experiment) -> Requests:
    """Return an experiment's unique requests with what its clients and its end allow."""
    arrivals = experiment.arrivals
    requests = requests_from(
        arrivals,
        experiment.slo,
        engine=experiment.engine,
        attempts_ns=attempts_span_ns(experiment),
    )
    if experiment.kv == "prefix_cache":
        unread = np.array(least_unread_tokens(arrivals), dtype=np.int64)
        requests = replace(requests, unread_tokens=unread)
    if experiment.drains:
        return requests
    return replace(requests, ends_ns=arrivals[-1].arrival_ns + 1)


def attempts_span_ns(experiment: Experiment) -> Nanos:
    """Return how long after a first arrival the last attempt can come, 0 without retries.

    A failed attempt was refused at once, waited its time before the engine, or ran into its
    client's patience; then comes the longest delay that its client takes.
    """
    clients, queue = experiment.clients, experiment.queue
    stay_ns = 0
    if queue.items_max:
        stay_ns = max(queue.wait_ns_max_of(priority) for priority in experiment.terms.priorities)
    if clients.timeout_ns is not None:
        stay_ns = max(stay_ns, clients.timeout_ns)
    return sum(stay_ns + delay_ns for delay_ns in clients.longest_delays_ns())


def summary_with_tenants(record: Record, slo: Slo) -> dict[str, Any]:
    """Return ``summary``, and goodput per tenant where the trace names more than one."""
    figures = summary(record, slo)
    arrivals = record.scenario.arrivals
    if len({arrival.tenant for arrival in arrivals}) > 1:
        engine = record.scenario.profile
        good = {a.index for a in record.attempts if is_good(a, slo, engine=engine)}
        figures["tenants"] = _goodput_by_tenant(arrivals, good)
    return figures


def _goodput_by_tenant(arrivals: Sequence[Arrival], good: set[int]) -> dict[str, dict[str, Any]]:
    names, which = np.unique(np.array([a.tenant for a in arrivals]), return_inverse=True)
    is_served = np.zeros(len(arrivals))
    is_served[sorted(good)] = 1.0
    tokens = np.array([a.prompt_tokens + a.output_tokens for a in arrivals], dtype=np.float64)
    unique = np.bincount(which)
    counts = np.bincount(which, weights=is_served) / unique
    shares = np.bincount(which, weights=is_served * tokens) / np.bincount(which, weights=tokens)
    return {
        name: {"unique": int(n), "goodput_unique": float(c), "goodput_tokens": float(t)}
        for name, n, c, t in zip(names.tolist(), unique, counts, shares, strict=True)
    }


def with_efficiency(ours: dict[str, Any], yardstick: Yardstick) -> dict[str, Any]:
    """Return a row's figures with efficiencies added.

    Args:
        ours: As ``summary_with_tenants`` has them; not changed.
        yardstick: For the same requests.

    Returns:
        The same with ``efficiency_count``, ``efficiency_tokens`` (None where the bound is 0) and
        ``bound``: its level, figures as shares of all, width of buckets in s, and whether the run
        kept what the level assumes; a run that preempted is bounded by level L only.
    """
    bound, figures = yardstick.bound, yardstick.bound.figures
    row = dict(ours)
    row["bound"] = {
        "level": bound.level,
        **{kind: round(figures[kind].value, 6) for kind in KINDS},
        "bucket_s": s_from_ns(bound.width_ns),
        "attempts_s": s_from_ns(yardstick.requests.attempts_ns),
        "holds": bound.level != "E" or not ours["preemptions"],
    }
    for kind in KINDS:
        row[f"efficiency_{kind}"] = _ratio(ours[_GOODPUT[kind]], figures[kind].value)
    if "tenants" in ours:
        parts = {kind: bound.by_tenant(yardstick.requests, kind=kind) for kind in KINDS}
        row["tenants"] = {
            name: {
                **tenant,
                **{f"bound_{kind}": round(parts[kind][name], 6) for kind in KINDS},
                **{
                    f"efficiency_{kind}": _ratio(tenant[_GOODPUT[kind]], parts[kind][name])
                    for kind in KINDS
                },
            }
            for name, tenant in ours["tenants"].items()
        }
    return row


def _ratio(goodput: float, bound: float) -> float | None:
    return round(goodput / bound, 6) if bound > 0 else None
