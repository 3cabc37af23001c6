"""What did a run achieve once it was warm?

Model: the first ``warmup`` requests of a trace fill the engine and teach the predictor, the last
``cooldown`` ones keep the load on while what is measured is still served; both are run and neither
is counted. The default warm-up fills 256 seats at three times the capacity, where two requests of
three are refused, and is twice the window of output lengths that the predictor learns from.
Rule: capacity and load refer to the measured requests. goodput_rps = good measured requests / time
from the first of them to the first request after them: a rate that the end of a run cannot flatter.
Trade-off: a trace's own course is cut; what happens in the warm-up is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import s_from_ns
from tokenweir.sim.attempt import Fate
from tokenweir.sim.results import Slo, is_good, quantile_s
from tokenweir.sim.scenario import Record
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import check_span, scaled
from tokenweir.study.load.plan import LOAD_MAX, LOAD_MIN

__all__ = ["COOLDOWN", "WARMUP", "Window", "window_figures", "windowed"]

WARMUP = 1_000
COOLDOWN = 500


@dataclass(frozen=True, slots=True)
class Window:
    """A trace at one load, and which part of it counts.

    Attributes:
        arrivals: Warm-up, measured requests and cool-down, with times scaled.
        first: Index of the first measured request.
        last: Index after the last one.
        capacity_rps: Of the engine on the measured requests.
    """

    arrivals: tuple[Arrival, ...] = field(repr=False)
    first: int
    last: int
    capacity_rps: float

    @property
    def measured(self) -> tuple[Arrival, ...]:
        """The requests that count."""
        return self.arrivals[self.first : self.last]

    @property
    def span_s(self) -> float:
        """Time in which the measured requests arrive, above 0."""
        end = min(self.last, len(self.arrivals) - 1)
        return s_from_ns(self.arrivals[end].arrival_ns - self.arrivals[self.first].arrival_ns)


def windowed(
    trace: Sequence[Arrival],
    engine: EngineProfile,
    *,
    load: float,
    requests: int | None,
    warmup: int = WARMUP,
    cooldown: int = COOLDOWN,
) -> Window:
    """Cut a trace and scale its times so that the measured requests come at a load.

    Args:
        trace: By time; the first request comes at 0 of the run.
        engine: Whose capacity the load is a multiple of.
        load: Mean rate of the measured requests, as a multiple of the capacity.
        requests: How many count, or None for all between warm-up and cool-down.
        warmup: Requests run before, 0 or more.
        cooldown: Requests run after, 0 or more; fewer where the trace ends.

    Raises:
        ConfigError: A value is out of range, or the trace is too short, or all at once.
    """
    _check(load=load, requests=requests, warmup=warmup, cooldown=cooldown)
    last = len(trace) - cooldown if requests is None else min(warmup + requests, len(trace))
    if last - warmup < 2:
        raise ConfigError(
            f"the trace has {len(trace):,} requests, which leaves {max(0, last - warmup)} after "
            f"{warmup:,} of warm-up and {cooldown:,} of cool-down, allowed: 2 or more left"
        )
    start_ns = trace[0].arrival_ns
    chosen = [replace(a, arrival_ns=a.arrival_ns - start_ns) for a in trace[: last + cooldown]]
    cut = Window(tuple(chosen), warmup, last, 1.0)
    if cut.span_s <= 0:
        raise ConfigError(
            f"all {last - warmup} measured requests of the trace arrive at once, so they have no "
            "rate to scale"
        )
    capacity = engine.capacity_rps([(a.prompt_tokens, a.output_tokens) for a in cut.measured])
    recorded_rps = (last - warmup) / cut.span_s
    arrivals = scaled(chosen, load * capacity / recorded_rps)
    check_span(arrivals)
    return Window(tuple(arrivals), warmup, last, capacity)


def _check(*, load: float, requests: int | None, warmup: int, cooldown: int) -> None:
    if not LOAD_MIN <= load <= LOAD_MAX:
        raise ConfigError(
            f"--load {load:g} is not allowed, allowed: {LOAD_MIN:g} to {LOAD_MAX:,.0f}"
        )
    if requests is not None and requests < 2:
        raise ConfigError(f"--requests {requests} is not allowed, allowed: 2 or more, or all")
    for name, value in (("--warmup", warmup), ("--cooldown", cooldown)):
        if value < 0:
            raise ConfigError(f"{name} {value} is not allowed, allowed: 0 or more")


def window_figures(record: Record, slo: Slo, *, window: Window) -> dict[str, float | None]:
    """Return a run's figures over the measured requests, any attempt of theirs.

    Returns:
        ``goodput_requests`` and ``goodput_tokens`` as shares of what was asked, the same per second
        (``goodput_rps``, ``goodput_tokens_per_s``), ``attainment``: share of what entered the
        engine that met the SLO (None where nothing did), ``refused_fraction``: unique requests
        that never entered it, TTFT of what was served, and what the engine went through.
    """
    measured, engine = window.measured, record.scenario.profile
    attempts = [a for a in record.attempts if window.first <= a.index < window.last]
    good = {a.index for a in attempts if is_good(a, slo, engine=engine)}
    entered = [a for a in attempts if a.is_dispatched]
    tokens = [a.prompt_tokens + a.output_tokens for a in measured]
    good_tokens = sum(tokens[index - window.first] for index in good)
    served = [a for a in attempts if a.fate is Fate.COMPLETED and a.first_ns is not None]
    ttft_ns = [a.first_ns - a.arrive_ns for a in served if a.first_ns is not None]
    samples = record.samples
    count = len(measured)
    return {
        "requests": count,
        "attempts": len(attempts),
        "completed": len(served),
        "goodput_requests": round(len(good) / count, 6),
        "goodput_tokens": round(good_tokens / sum(tokens), 6),
        "goodput_rps": round(len(good) / window.span_s, 6),
        "goodput_tokens_per_s": round(good_tokens / window.span_s, 3),
        "attainment": round(len(good) / len({a.index for a in entered}), 6) if entered else None,
        "refused_fraction": round(1 - len({a.index for a in entered}) / count, 6),
        "ttft_p50_s": quantile_s(ttft_ns, 0.5),
        "ttft_p99_s": quantile_s(ttft_ns, 0.99),
        "preemptions": record.preemptions,
        "kv_mean_fraction": round(sum(s.kv_fraction for s in samples) / max(1, len(samples)), 6),
    }
