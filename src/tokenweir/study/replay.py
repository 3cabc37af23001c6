"""What would a policy have done with this trace at this load?

Capacity C of an engine on a trace = 1 / mean engine seconds per request, from true lengths and a
full batch, whatever the policy. Load X divides inter-arrival times so that the mean rate is X C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import s_from_ns
from tokenweir.sim.results import summary
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import Surge, check_span, scaled, surged
from tokenweir.study.bound.efficiency import Yardstick, summary_with_tenants, with_efficiency
from tokenweir.study.experiment import Experiment, run_seeds
from tokenweir.study.load.plan import LOAD_MAX, LOAD_MIN

__all__ = ["Replay", "capacity_rps", "prepared", "replay_rows"]


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace made ready for one load.

    Attributes:
        arrivals: With times scaled, and surged if asked for.
        capacity_rps: Of the engine on these requests.
        load: Mean rate as a multiple of it, before a surge.
    """

    arrivals: tuple[Arrival, ...] = field(repr=False)
    capacity_rps: float
    load: float


def capacity_rps(arrivals: Sequence[Arrival], experiment: Experiment) -> float:
    """Return requests per second that the engine can serve of this mix."""
    return experiment.engine.capacity_rps([(a.prompt_tokens, a.output_tokens) for a in arrivals])


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


def replay_rows(
    replay: Replay,
    experiment: Experiment,
    *,
    policies: Sequence[str],
    seeds: Sequence[int],
    yardstick: Yardstick | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every policy on the same requests and return rows as the JSON output has them.

    Args:
        replay: The requests.
        experiment: Everything else but the policy.
        policies: Rows of ``POLICIES``.
        seeds: Of every random stream; figures are means over them.
        yardstick: Bound of these requests, to which efficiencies refer, or None for none.
        on_run: Called after each run.
    """
    experiments = [
        replace(experiment, policy=policy, arrivals=replay.arrivals) for policy in policies
    ]
    outcomes = run_seeds(
        experiments,
        seeds=seeds,
        figures=summary if yardstick is None else summary_with_tenants,
        on_run=on_run,
    )
    return [
        {
            "group": "trace",
            "load": replay.load,
            "policy": policy,
            "queue": experiment.discipline,
            "seeds": len(seeds),
            "capacity_rps": round(replay.capacity_rps, 6),
            "ours": outcome.summary
            if yardstick is None
            else with_efficiency(outcome.summary, yardstick),
            "series": outcome.series,
        }
        for policy, outcome in zip(policies, outcomes, strict=True)
    ]
