"""What would a policy have done with this trace at this load?

Capacity C of an engine on a trace = 1 / mean engine seconds per request, from true lengths and a
full batch, whatever the policy; of a pool, as many times that as it has engines. Load X divides
inter-arrival times so that the mean rate is X C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, s_from_ns
from tokenweir.sim.results import summary
from tokenweir.sim.reuse import least_unread_tokens
from tokenweir.sim.terms import TermsByTenant
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import Surge, check_span, scaled, surged
from tokenweir.study.bound.efficiency import Yardstick, summary_with_tenants, with_efficiency
from tokenweir.study.experiment import Experiment, mean_of, mean_outcome, run_jobs
from tokenweir.study.load.plan import LOAD_MAX, LOAD_MIN
from tokenweir.study.plan import is_drawn, trace_from
from tokenweir.study.statistics import intervals_of

__all__ = ["Replay", "capacity_rps", "prepared", "prepared_seeds", "replay_rows"]


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace made ready for one load.

    Attributes:
        arrivals: With times scaled, and surged if asked for.
        capacity_rps: Of the engines on these requests.
        load: Mean rate as a multiple of it, before a surge.
    """

    arrivals: tuple[Arrival, ...] = field(repr=False)
    capacity_rps: float
    load: float


def capacity_rps(arrivals: Sequence[Arrival], experiment: Experiment) -> float:
    """Return requests per second that the engines can serve of this mix.

    With a prefix cache only what has to be read is work, as ``least_unread_tokens`` says.
    """
    engine, replicas = experiment.engine, experiment.replicas
    if experiment.kv == "prefix_cache":
        times_ns = [
            engine.request_ns(
                a.prompt_tokens, a.output_tokens, cached_tokens=a.prompt_tokens - unread
            )
            for a, unread in zip(arrivals, least_unread_tokens(arrivals), strict=True)
        ]
        return replicas * len(times_ns) * NS_PER_S / sum(times_ns)
    return replicas * engine.capacity_rps([(a.prompt_tokens, a.output_tokens) for a in arrivals])


def prepared(
    trace: Sequence[Arrival],
    experiment: Experiment,
    *,
    load: float | None,
    requests: int | None = None,
    surge: Surge | None = None,
) -> Replay:
    """Scale a trace's times to a load, or leave them as recorded where it is None.

    Raises:
        ConfigError: The load is out of range, the trace has no length in time, or too much of it.
    """
    if load is not None and not LOAD_MIN <= load <= LOAD_MAX:
        raise ConfigError(
            f"--load {load:g} is not allowed, allowed: {LOAD_MIN:g} to {LOAD_MAX:,.0f}"
        )
    if requests is not None and requests < 2:
        raise ConfigError(f"--requests {requests} is not allowed, allowed: 2 or more")
    chosen = trace[:requests]
    span_s = s_from_ns(chosen[-1].arrival_ns)
    if span_s <= 0:
        raise ConfigError(
            f"all {len(chosen)} requests of the trace arrive at once, so it has no rate to scale"
        )
    capacity = capacity_rps(chosen, experiment)
    recorded_rps = len(chosen) / span_s
    if load is None:
        load, arrivals = recorded_rps / capacity, list(chosen)
    else:
        arrivals = scaled(chosen, load * capacity / recorded_rps)
    if surge is not None:
        arrivals = surged(arrivals, surge)
    check_span(arrivals)
    return Replay(tuple(arrivals), capacity, load)


def prepared_seeds(
    file: str,
    experiment: Experiment,
    *,
    seeds: Sequence[int],
    load: float | None,
    requests: int | None = None,
    surge: Surge | None = None,
) -> list[Replay]:
    """Return the requests of each seed where they are drawn, else one for all seeds.

    Raises:
        ConfigError: See ``prepared`` and ``trace_from``.
    """
    return [
        prepared(trace_from(file, seed=seed), experiment, load=load, requests=requests, surge=surge)
        for seed in (seeds if is_drawn(file) else seeds[:1])
    ]


def replay_rows(
    replays: Sequence[Replay],
    experiment: Experiment,
    *,
    policies: Sequence[str],
    seeds: Sequence[int],
    yardsticks: Sequence[Yardstick] = (),
    processes: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every policy on the same requests and return rows as the JSON output has them.

    Args:
        replays: The requests of each seed, or one for all seeds.
        experiment: Everything else but the policy; what it sets of its own policy's parts holds
            for that row alone.
        policies: Rows of ``POLICIES``.
        seeds: Of every random stream; figures are means over them, and where there are several,
            ``ci95`` has half the widths of their 95 % intervals.
        yardsticks: Bounds of these requests, to which efficiencies refer, as many as ``replays``,
            or none.
        processes: Runs at once; the result does not depend on it.
        on_run: Called after each run.
    """
    jobs = [
        (replace(_under(experiment, policy), arrivals=_of(replays, i).arrivals), seed)
        for policy in policies
        for i, seed in enumerate(seeds)
    ]
    tells_tenants = bool(yardsticks) or experiment.terms != TermsByTenant()
    figures = summary_with_tenants if tells_tenants else summary
    outcomes = run_jobs(jobs, processes=processes, figures=figures, on_run=on_run)
    rows = []
    for number, policy in enumerate(policies):
        mine = outcomes[number * len(seeds) : (number + 1) * len(seeds)]
        if yardsticks:
            mine = [
                replace(outcome, summary=with_efficiency(outcome.summary, _of(yardsticks, i)))
                for i, outcome in enumerate(mine)
            ]
        mean = mean_outcome(mine)
        row: dict[str, Any] = {
            "group": "trace",
            "load": mean_of([replay.load for replay in replays]),
            "policy": policy,
            "queue": experiment.discipline,
            "seeds": len(seeds),
            "capacity_rps": round(sum(r.capacity_rps for r in replays) / len(replays), 6),
            "ours": mean.summary,
        }
        if len(seeds) > 1:
            row["ci95"] = _halves([outcome.summary for outcome in mine])
        rows.append({**row, "series": mean.series})
    return rows


def _under(experiment: Experiment, policy: str) -> Experiment:
    """Return the experiment under a policy; another one has no use for this one's limit."""
    if policy == experiment.policy:
        return experiment
    return replace(experiment, policy=policy, capacity=None, length_mode=None)


def _of(values: Sequence[Any], index: int) -> Any:
    """Return a seed's own value, or the one that all share."""
    return values[index if len(values) > 1 else 0]


def _halves(summaries: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return half the width of the 95 % interval of each figure that is a number."""
    numbers = [
        {name: value for name, value in row.items() if not isinstance(value, dict)}
        for row in summaries
    ]
    return {
        name: None if interval is None or interval.half is None else round(interval.half, 6)
        for name, interval in intervals_of(numbers).items()
    }
