"""How much may be on a replica at once, going by what its clients get and nothing else?

An outer safety: where the predictions of the inner tests hold, this limit never binds; where they
do not (another profile, a throttled card, a noisy neighbour), it finds the limit by trying.

Model: L = requests in flight allowed, t = share of the KV pool that they may hold; a first token's
pressure x = (dispatch to first token) / max(SLO, ``first_token_unloaded_ratio`` times what an idle
engine needs for that prompt), so that long prompts do not look like overload; a stream's y = time
per token since its first one / TPOT bound. Samples of ``window_ns``, none older than the last cut.
Rule, every ``tick_ns``: breach if the p95 of x is above ``first_token_breach``, that of y above
``pace_breach``, the engine has preempted, or KV in use is above ``kv_breach`` of the pool: L and t
go to ``shrink_ratio`` of the smaller of limit and highest use since the last tick, and rest for
``hold_ticks``. Healthy if p95 of x is below three quarters of its bound and of y below eight
ninths: after ``healthy_ticks`` of these in a row whatever was used to 0.9 grows by
``grow_fraction``, L by 1 at least. In between nothing moves. L stays within ``in_flight_min`` and
its maximum; up to the former, t is not asked either.
Properties: a latency that stays at the timeout shrinks the limit down to the minimum, since it is
compared with a bound and not with its own past. No rule looks at end-to-end latency, which is the
answer's length, or at how busy the card is, which is high on a healthy engine.
Trade-off: the wait in our own queue is no signal, though it is the first thing to grow: this very
limit is what the queue waits for, and shrinking it would feed on itself.
Source: Chiu and Jain 1989 for the rule; RFC 7661 (congestion window validation) for not growing a
limit that is not used and for cutting from what is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["AimdConfig", "AimdLimit"]

# Of the bounds of a breach, for health.
_FIRST_TOKEN_HEALTHY = 0.75
_PACE_HEALTHY = 8 / 9
# Used to this share of the limit, the limit is what holds back.
_USED_FRACTION = 0.9
# More than this share above a bound is a p95 above it. Two samples may come from one stream, which
# is no share of anything.
_TAIL_FRACTION = 0.05
_TAIL_SAMPLES_MIN = 3
_SAMPLES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class AimdConfig:
    """How the limit moves.

    Attributes:
        first_token_slo_ns: Bound on dispatch to first token, above 0.
        first_token_unloaded_ratio: A prompt may take so many times what it takes an idle engine,
            0 to 1,000; three is what people bear.
        tpot_ns: Bound on the pace, or None for no test of it.
        first_token_breach: Of x, above 0 to 2; what is left is for the wait in our queue.
        pace_breach: Of y, above 0 to 2.
        kv_breach: Of the pool, above 0 to 1; 1 leaves it to preemptions.
        tick_ns: Between two looks, above 0; a few steps of any engine.
        window_ns: Samples older than this are dropped, at least a tick.
        shrink_ratio: What a breach leaves, 0.5 to below 1.
        grow_fraction: What a healthy tick adds, above 0 to 0.5.
        hold_ticks: Rest after a breach, 0 or more: what was let in before it is still under way.
        healthy_ticks: In a row before growth, 1 or more.
        in_flight_min: The limit never falls below, 1 or more; too few samples come from fewer.
        in_flight_max: The limit starts there and never rises above, at least the minimum.
    """

    first_token_slo_ns: Nanos = NS_PER_S
    first_token_unloaded_ratio: float = 3.0
    tpot_ns: Nanos | None = 80 * NS_PER_MS
    first_token_breach: float = 0.8
    pace_breach: float = 0.9
    kv_breach: float = 0.97
    tick_ns: Nanos = 500 * NS_PER_MS
    window_ns: Nanos = 2 * NS_PER_S
    shrink_ratio: float = 0.9
    grow_fraction: float = 0.02
    hold_ticks: int = 2
    healthy_ticks: int = 3
    in_flight_min: int = 4
    in_flight_max: int = 1_024

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, least, most in (
            ("first_token_slo_ns", 1, None),
            ("first_token_unloaded_ratio", 0, 1_000),
            ("tpot_ns", 1, None),
            ("tick_ns", 1, None),
            ("window_ns", self.tick_ns, None),
            ("hold_ticks", 0, None),
            ("healthy_ticks", 1, None),
            ("in_flight_min", 1, None),
            ("in_flight_max", self.in_flight_min, None),
        ):
            value = getattr(self, name)
            if value is not None and (value < least or (most is not None and value > most)):
                span = f"{least} or more" if most is None else f"{least} to {most}"
                raise ConfigError(f"{name} {value} is not allowed, allowed: {span}")
        for name, most in (("first_token_breach", 2), ("pace_breach", 2), ("kv_breach", 1)):
            if not 0 < getattr(self, name) <= most:
                raise ConfigError(
                    f"{name} {getattr(self, name)} is not allowed, allowed: above 0 to {most}"
                )
        if not 0.5 <= self.shrink_ratio < 1:
            raise ConfigError(
                f"shrink_ratio {self.shrink_ratio} is not allowed, allowed: 0.5 to below 1"
            )
        if not 0 < self.grow_fraction <= 0.5:
            raise ConfigError(
                f"grow_fraction {self.grow_fraction} is not allowed, allowed: above 0 to 0.5"
            )


class AimdLimit:
    """The limit of one replica; O(1) per sample, O(samples of a window) per tick."""

    __slots__ = (
        "_config",
        "_first_tokens",
        "_healthy_ticks",
        "_hold_ticks",
        "_in_flight_limit",
        "_in_flight_peak",
        "_is_preempting",
        "_kv_peak_fraction",
        "_paces",
        "breaches",
        "kv_limit_fraction",
        "next_tick_ns",
    )

    def __init__(self, config: AimdConfig) -> None:
        """Start at the maximum, having seen nothing."""
        self._config = config
        # A float, or small limits would round their growth and cuts away.
        self._in_flight_limit = float(config.in_flight_max)
        self.kv_limit_fraction = 1.0
        self.breaches = 0
        self._first_tokens: deque[tuple[Nanos, float]] = deque(maxlen=_SAMPLES_MAX)
        self._paces: deque[tuple[Nanos, float]] = deque(maxlen=_SAMPLES_MAX)
        self._is_preempting = False
        self._in_flight_peak = 0
        self._kv_peak_fraction = 0.0
        self._healthy_ticks = 0
        self._hold_ticks = 0
        # Before any time that can be passed in: monotonic clocks may start anywhere.
        self.next_tick_ns: Nanos = -(1 << 62)

    @property
    def in_flight_limit(self) -> int:
        """Requests allowed at once."""
        return int(self._in_flight_limit)

    @property
    def in_flight_min(self) -> int:
        """Requests that are always allowed."""
        return self._config.in_flight_min

    def note_first_token(self, waited_ns: Nanos, *, unloaded_ns: Nanos, now_ns: Nanos) -> None:
        """Take in a first token.

        Args:
            waited_ns: From dispatch.
            unloaded_ns: What an idle engine needs for that prompt, 0 where nobody knows.
            now_ns: Monotonic time.
        """
        self._first_tokens.append((now_ns, self._pressure(waited_ns, unloaded_ns)))

    def note_unanswered(self, waited_ns: Nanos, *, unloaded_ns: Nanos, now_ns: Nanos) -> None:
        """Take in a request that ended without one: its time is a lower bound of what it missed.

        Whoever leaves early says nothing of the engine, and would pass for a fast answer.
        """
        pressure = self._pressure(waited_ns, unloaded_ns)
        if pressure > self._config.first_token_breach:
            self._first_tokens.append((now_ns, pressure))

    def note_pace(self, token_ns: float, *, now_ns: Nanos) -> None:
        """Take in one stream's time per output token since its first one."""
        if self._config.tpot_ns is not None:
            self._paces.append((now_ns, token_ns / self._config.tpot_ns))

    def note_preemption(self) -> None:
        """Take in that the engine has taken KV from a running request."""
        self._is_preempting = True

    def note_use(self, in_flight: int, *, kv_fraction: float) -> None:
        """Take in what is on the replica after a dispatch, and the share of its pool in use."""
        self._in_flight_peak = max(self._in_flight_peak, in_flight)
        self._kv_peak_fraction = max(self._kv_peak_fraction, kv_fraction)

    def advance(self, *, in_flight: int, kv_fraction: float, now_ns: Nanos) -> None:
        """Move the limits if a tick is due.

        After a silence one tick stands for all that were missed: nothing happened in them.

        Args:
            in_flight: Requests on the replica now.
            kv_fraction: Share of its pool in use, 0 where that is not known.
            now_ns: Monotonic time.
        """
        if now_ns < self.next_tick_ns:
            return
        self.next_tick_ns = now_ns + self._config.tick_ns
        self.note_use(in_flight, kv_fraction=kv_fraction)
        self._drop_old(now_ns)
        self._tick(kv_fraction)
        self._is_preempting = False
        self._in_flight_peak, self._kv_peak_fraction = in_flight, kv_fraction

    @property
    def is_holding(self) -> bool:
        """Whether the limit was cut a moment ago, and what that brings is still awaited."""
        return self._hold_ticks > 0

    def _tick(self, kv_fraction: float) -> None:
        config = self._config
        first_token, pace = config.first_token_breach, config.pace_breach
        if self._hold_ticks > 0:
            self._hold_ticks -= 1
        elif (
            self._is_preempting
            or kv_fraction > config.kv_breach
            or _has_tail(self._first_tokens, first_token)
            or _has_tail(self._paces, pace)
        ):
            self._shrink()
        elif _has_tail(self._first_tokens, first_token * _FIRST_TOKEN_HEALTHY) or _has_tail(
            self._paces, pace * _PACE_HEALTHY
        ):
            self._healthy_ticks = 0
        else:
            self._healthy_ticks += 1
            if self._healthy_ticks >= config.healthy_ticks:
                self._grow()

    def _shrink(self) -> None:
        config = self._config
        self.breaches += 1
        self._healthy_ticks = 0
        self._hold_ticks = config.hold_ticks
        used = min(self._in_flight_limit, float(self._in_flight_peak))
        self._in_flight_limit = max(float(config.in_flight_min), used * config.shrink_ratio)
        self.kv_limit_fraction = (
            min(self.kv_limit_fraction, self._kv_peak_fraction) * config.shrink_ratio
        )
        # What came before the cut has been answered by it.
        self._first_tokens.clear()
        self._paces.clear()

    def _grow(self) -> None:
        config = self._config
        if self._in_flight_peak >= _USED_FRACTION * self.in_flight_limit:
            step = max(1.0, config.grow_fraction * self._in_flight_limit)
            self._in_flight_limit = min(float(config.in_flight_max), self._in_flight_limit + step)
        if self._kv_peak_fraction >= _USED_FRACTION * self.kv_limit_fraction:
            self.kv_limit_fraction = min(
                1.0, max(self.kv_limit_fraction * (1 + config.grow_fraction), config.grow_fraction)
            )

    def _pressure(self, waited_ns: Nanos, unloaded_ns: Nanos) -> float:
        config = self._config
        bound_ns = max(config.first_token_slo_ns, config.first_token_unloaded_ratio * unloaded_ns)
        return waited_ns / bound_ns

    def _drop_old(self, now_ns: Nanos) -> None:
        horizon_ns = now_ns - self._config.window_ns
        for samples in (self._first_tokens, self._paces):
            while samples and samples[0][0] < horizon_ns:
                samples.popleft()

    def __repr__(self) -> str:
        """Show the state in one line."""
        return (
            f"AimdLimit({self.in_flight_limit} in flight, {self.kv_limit_fraction:.3f} of KV, "
            f"{self.breaches} breaches)"
        )


def _has_tail(samples: deque[tuple[Nanos, float]], bound: float) -> bool:
    """Tell whether the p95 is above a bound."""
    above = sum(value > bound for _, value in samples)
    return above >= _TAIL_SAMPLES_MIN and above > _TAIL_FRACTION * len(samples)
