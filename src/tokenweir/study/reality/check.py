"""How far is the simulator from a measured run, on a profile of the same engine?

The run's own arrivals and lengths go to a simulated engine under policy ``none``, which is what the
real one had. Nothing is fitted to the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.sim.scenario import Record
from tokenweir.study.experiment import Experiment, run_experiment
from tokenweir.study.fitting.fit import with_step_overhead
from tokenweir.study.reality.runs import Figures, MeasuredRun, figures_of

__all__ = ["Deviation", "deviations", "overhead_for", "simulated"]

# What a step may take beyond its kernels; more would be another engine.
_OVERHEAD_NS_MAX = 200_000_000
_OVERHEAD_NS_EXACT = 10_000


@dataclass(frozen=True, slots=True)
class Deviation:
    """One figure, measured and simulated.

    Attributes:
        name: Of the figure, with its unit.
        measured: In the real run.
        simulated: Here.
        allowed: Largest deviation that is good enough, None where nothing was promised.
    """

    name: str
    measured: float
    simulated: float
    allowed: float | None

    @property
    def fraction(self) -> float | None:
        """Simulated / measured - 1; None where 0 was measured."""
        return self.simulated / self.measured - 1.0 if self.measured else None

    @property
    def is_met(self) -> bool | None:
        """Whether it is as near as was promised; None where nothing was."""
        if self.allowed is None or self.fraction is None:
            return None
        return abs(self.fraction) <= self.allowed


def simulated(run: MeasuredRun, engine: EngineProfile) -> tuple[Figures, Record]:
    """Run a measured run's requests on a simulated engine.

    Raises:
        ConfigError: A request could never fit the engine.
    """
    largest = max(a.prompt_tokens + a.output_tokens for a in run.arrivals)
    if largest > engine.kv_tokens:
        raise ConfigError(
            f"{run.name} has a request of {largest:,} tokens, profile {engine.name} holds "
            f"{engine.kv_tokens:,}, allowed: a profile with a larger kv_tokens"
        )
    record = run_experiment(
        Experiment(policy="none", arrivals=run.arrivals, engine=engine, drains=True, checks=False),
        seed=1,
    )
    served = [
        (
            s_from_ns(attempt.arrive_ns),
            s_from_ns(attempt.first_ns or 0),
            s_from_ns(attempt.end_ns or 0),
            attempt.output_tokens,
        )
        for attempt in record.attempts
    ]
    figures = figures_of(
        served,
        waiting_max=max((sample.waiting_in_engine for sample in record.samples), default=0),
        running_max=max((sample.running for sample in record.samples), default=0),
    )
    return figures, record


def deviations(measured: Figures, ours: Figures, *, allowed: float) -> tuple[Deviation, ...]:
    """Compare two runs; promised are the waiting peak, the drain time and the median TTFT."""
    return (
        Deviation("most waiting", measured.waiting_max, ours.waiting_max, allowed),
        Deviation("drained after, s", measured.drain_s, ours.drain_s, allowed),
        Deviation("TTFT p50, s", measured.ttft_s[0], ours.ttft_s[0], allowed),
        Deviation("TTFT p90, s", measured.ttft_s[1], ours.ttft_s[1], None),
        Deviation("TTFT p99, s", measured.ttft_s[2], ours.ttft_s[2], None),
        Deviation("TPOT p50, ms", measured.tpot_ms[0], ours.tpot_ms[0], None),
        Deviation("TPOT p99, ms", measured.tpot_ms[1], ours.tpot_ms[1], None),
        Deviation("most running", measured.running_max, ours.running_max, None),
    )


def overhead_for(run: MeasuredRun, engine: EngineProfile) -> Nanos:
    """Return what has to be added to every step for a run to drain when it did.

    A longer step never drains sooner, so halving the range finds it.
    """
    low_ns, high_ns = 0, _OVERHEAD_NS_MAX
    while high_ns - low_ns > _OVERHEAD_NS_EXACT:
        middle_ns = (low_ns + high_ns) // 2
        figures, _ = simulated(run, with_step_overhead(engine, middle_ns))
        if figures.drain_s < run.figures.drain_s:
            low_ns = middle_ns
        else:
            high_ns = middle_ns
    return low_ns
