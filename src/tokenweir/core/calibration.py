"""How does slow telemetry correct our fast account without releasing anything twice?

Model: real(t) = KV tokens the engine reported for time t; held(t) = what open reservations held at
that same time t; drift d = real - held; u = the unattributed term.
Rule: u moves towards d by ``gain`` at each look; capacity tests add u to what reservations hold.
Reservations are never overwritten, so a settle after a calibration releases what it reserved and no
more. A negative d is believed only once it has lasted ``credit_patience_ns`` without a preemption,
and then at most for half of the held prompt tokens: it is prefix sharing, if it is anything. Stale
telemetry gives no credit, and neither does an engine that claims to hold nothing while our requests
run on it: shared KV is KV still, so such a look is broken. A pool of another size is another
engine, of which nothing is known; what no look has told for ``forget_ns`` fades by the gain at each
look that does not tell.
Trade-off: a small gain rides out scrape noise but follows foreign traffic late.
Source: taking the difference at the scrape's own time matters because 0.7 s of lag alone looks like
a tenth of the pool after a spike.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["Calibration", "CalibrationConfig"]


@dataclass(frozen=True, slots=True)
class CalibrationConfig:
    """How telemetry is weighed.

    Attributes:
        gain: Share of the new difference taken in at each look, above 0 to 1; 1 trusts each look
            fully, which suits a simulator's exact telemetry.
        stale_ns: Telemetry older than this makes the headroom larger; two scrapes of 1 s.
        stale_headroom_fraction: By how much, 0 to 0.5.
        alarm_fraction: Drift over this share of the pool for ``alarm_patience_ns`` is an alarm.
        alarm_patience_ns: See above.
        credit_patience_ns: How long a negative drift must last before it is believed.
        credit_fraction_max: Largest believed share of the held prompt tokens.
        forget_ns: After this long without KV telemetry the correction fades.
    """

    gain: float = 0.3
    stale_ns: Nanos = 2 * NS_PER_S
    stale_headroom_fraction: float = 0.05
    alarm_fraction: float = 0.05
    alarm_patience_ns: Nanos = 10 * NS_PER_S
    credit_patience_ns: Nanos = 10 * NS_PER_S
    credit_fraction_max: float = 0.5
    forget_ns: Nanos = 10 * NS_PER_S

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.gain <= 1:
            raise ConfigError(f"gain {self.gain} is not allowed, allowed: above 0 up to 1")
        if not 0 <= self.stale_headroom_fraction <= 0.5:
            raise ConfigError(
                f"stale_headroom_fraction {self.stale_headroom_fraction} is not allowed, "
                "allowed: 0 to 0.5"
            )
        for name in ("alarm_fraction", "credit_fraction_max"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} {getattr(self, name)} is not allowed, allowed: 0 to 1")


class Calibration:
    """The unattributed term of one replica."""

    def __init__(self, config: CalibrationConfig) -> None:
        """Start with no correction and no telemetry."""
        self._config = config
        self._smoothed_tokens = 0.0
        self._negative_since_ns: Nanos | None = None
        self._beyond_since_ns: Nanos | None = None
        self._preemptions_total: int | None = None
        self.unattributed_tokens = 0
        self.drift_tokens = 0
        self.scraped_ns: Nanos | None = None

    def calibrate(
        self,
        *,
        real_tokens: int,
        held_tokens: int,
        held_prompt_tokens: int,
        kv_tokens: int,
        preemptions_total: int | None,
        scraped_ns: Nanos,
    ) -> bool:
        """Take one look in.

        Args:
            real_tokens: What the engine held at ``scraped_ns``.
            held_tokens: What our reservations held at ``scraped_ns``.
            held_prompt_tokens: Prompt tokens of open reservations, which bounds a credit.
            kv_tokens: Size of the pool, which scales the alarm.
            preemptions_total: The engine's counter, or None.
            scraped_ns: Time of the look; an older look than the last one is ignored.

        Returns:
            Whether drift has been beyond the alarm bound for longer than the patience.
        """
        if self.scraped_ns is not None and scraped_ns < self.scraped_ns:
            return False
        config = self._config
        self.scraped_ns = scraped_ns
        self.drift_tokens = drift = real_tokens - held_tokens
        self._smoothed_tokens += config.gain * (drift - self._smoothed_tokens)
        if self._smoothed_tokens < 0 and real_tokens <= 0:
            self._smoothed_tokens = 0.0
        has_preempted = (
            preemptions_total is not None
            and self._preemptions_total is not None
            and preemptions_total > self._preemptions_total
        )
        self._preemptions_total = preemptions_total
        if self._smoothed_tokens >= 0 or has_preempted:
            self._negative_since_ns = None
        elif self._negative_since_ns is None:
            self._negative_since_ns = scraped_ns
        self.unattributed_tokens = self._believed(scraped_ns, held_prompt_tokens=held_prompt_tokens)
        return self._is_alarming(drift, kv_tokens=kv_tokens, scraped_ns=scraped_ns)

    def forget(self) -> None:
        """Drop the correction: the engine is another one."""
        self._smoothed_tokens = 0.0
        self._negative_since_ns = self._beyond_since_ns = None
        self._preemptions_total = None
        self.unattributed_tokens = self.drift_tokens = 0

    def fade(self, *, now_ns: Nanos) -> bool:
        """Note a look that told nothing; returns whether the correction has changed by it."""
        if self.scraped_ns is None or now_ns - self.scraped_ns <= self._config.forget_ns:
            return False
        self._smoothed_tokens *= 1 - self._config.gain
        self.unattributed_tokens = max(0, round(self._smoothed_tokens))
        return True

    def is_stale(self, *, now_ns: Nanos) -> bool:
        """Tell whether telemetry once came and has stopped coming."""
        return self.scraped_ns is not None and now_ns - self.scraped_ns > self._config.stale_ns

    def headroom_penalty_fraction(self, *, now_ns: Nanos) -> float:
        """Return what is kept free beside the policy's own headroom."""
        scraped_ns = self.scraped_ns
        if scraped_ns is None or now_ns - scraped_ns <= self._config.stale_ns:
            return 0.0
        return self._config.stale_headroom_fraction

    def credit_tokens(self, *, held_prompt_tokens: int, now_ns: Nanos) -> int:
        """Return the believed negative drift between two looks, at most 0.

        Args:
            held_prompt_tokens: Prompt tokens of what is open now.
            now_ns: Monotonic time.
        """
        if self.is_stale(now_ns=now_ns):
            return 0
        return min(0, self._believed(now_ns, held_prompt_tokens=held_prompt_tokens))

    def _believed(self, now_ns: Nanos, *, held_prompt_tokens: int) -> int:
        if self._smoothed_tokens >= 0:
            return round(self._smoothed_tokens)
        since_ns = self._negative_since_ns
        if since_ns is None or now_ns - since_ns < self._config.credit_patience_ns:
            return 0
        bound = self._config.credit_fraction_max * held_prompt_tokens
        return round(max(self._smoothed_tokens, -bound))

    def _is_alarming(self, drift: int, *, kv_tokens: int, scraped_ns: Nanos) -> bool:
        if abs(drift) <= self._config.alarm_fraction * kv_tokens:
            self._beyond_since_ns = None
            return False
        if self._beyond_since_ns is None:
            self._beyond_since_ns = scraped_ns
        return scraped_ns - self._beyond_since_ns >= self._config.alarm_patience_ns
