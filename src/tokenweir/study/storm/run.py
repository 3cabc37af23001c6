"""What do retries do after a spike, with and without pacing, against clients that never retry?

Rule: three runs on the same requests, declarations and client draws: nobody retries; clients retry
and are each told the predicted wait; clients retry and are paced. Load is Poisson with the
article's lengths at a base rate, then at the spike's, then at the base rate again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.units import ns_from_s
from tokenweir.sim.clients import ClientModel
from tokenweir.study.experiment import Experiment, mean_of, run_experiment, workload_of
from tokenweir.study.parallel import map_jobs
from tokenweir.study.storm.figures import storm_figures

__all__ = ["CASES", "Spike", "storm_rows"]

_RATE_MAX = 10_000.0
_SPAN_S_MAX = 3_600.0

# What is told, and whether clients retry: name -> (clients retry, returns are paced).
CASES: dict[str, tuple[bool, bool]] = {
    "no retries": (False, True),
    "each told the wait": (True, False),
    "paced": (True, True),
}


@dataclass(frozen=True, slots=True)
class Spike:
    """Load over time.

    Attributes:
        base_rps: Before and after, above 0.
        peak_rps: In between, above ``base_rps``.
        begins_s: When it rises, above 0.
        ends_s: When it falls again.
        until_s: When arrivals stop.
    """

    base_rps: float = 30.0
    peak_rps: float = 140.0
    begins_s: float = 15.0
    ends_s: float = 35.0
    until_s: float = 120.0

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.base_rps < self.peak_rps <= _RATE_MAX:
            raise ConfigError(
                f"rates {self.base_rps:g} and {self.peak_rps:g} are not allowed, allowed: 0 < base "
                f"< peak <= {_RATE_MAX:,.0f}"
            )
        if not 0 < self.begins_s < self.ends_s < self.until_s <= _SPAN_S_MAX:
            raise ConfigError(
                f"times {self.begins_s:g}, {self.ends_s:g} and {self.until_s:g} s are not allowed, "
                f"allowed: rising, up to {_SPAN_S_MAX:,.0f} s"
            )

    def segments(self) -> tuple[tuple[float, float], ...]:
        """Return (end in s, rate per s)."""
        return (
            (self.begins_s, self.base_rps),
            (self.ends_s, self.peak_rps),
            (self.until_s, self.base_rps),
        )


def storm_rows(
    experiment: Experiment,
    spike: Spike,
    *,
    seeds: Sequence[int],
    processes: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every case with every seed.

    Args:
        experiment: Policy, engine and the clients that retry.
        spike: Load.
        seeds: Of every random stream; the same for all cases.
        processes: Runs at once; the result does not depend on it.
        on_run: Called after each run.

    Returns:
        A row per case: its mean figures, and those of each seed.
    """
    named = [(name, replace(_case(experiment, name), segments=spike.segments())) for name in CASES]
    jobs = [(case, seed) for _, case in named for seed in seeds]
    measured = []
    with closing(map_jobs(partial(_measured, spike=spike), jobs, processes=processes)) as ended:
        for figures in ended:
            measured.append(figures)
            on_run()
    rows = []
    for number, (name, _) in enumerate(named):
        mine = measured[number * len(seeds) : (number + 1) * len(seeds)]
        rows.append({"case": name, "seeds": len(seeds), "mean": mean_of(mine), "runs": mine})
    return rows


def _case(experiment: Experiment, name: str) -> Experiment:
    retries, is_paced = CASES[name]
    return replace(
        experiment,
        clients=experiment.clients if retries else ClientModel(),
        returns=ReturnConfig() if is_paced else None,
    )


def _measured(job: tuple[Experiment, int], *, spike: Spike) -> dict[str, Any]:
    experiment, seed = job
    arrivals = workload_of(experiment, seed=seed)
    engine = experiment.engine
    per_request = sum(a.prompt_tokens + a.output_tokens for a in arrivals) / len(arrivals)
    capacity_rps = engine.capacity_rps([(a.prompt_tokens, a.output_tokens) for a in arrivals])
    return storm_figures(
        run_experiment(experiment, seed=seed),
        experiment.slo,
        spike_ends_ns=ns_from_s(spike.ends_s),
        spare_tokens_per_s=(capacity_rps - spike.base_rps) * per_request,
    )
