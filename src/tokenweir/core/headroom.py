"""How much of a KV pool is to stay free because predictions are wrong?

Model: n = requests on the replica, K = pool; e = tokens by which a request turned out larger than
its estimate, 0 where it did not; S = running mean of e squared. Estimates drawn from the lengths'
own distribution err to both sides alike, so the sum of n of them is wrong by about sqrt(2 n S).
Rule (spread): keep ``spread_ratio`` sqrt(2 n S) free. It grows with the root of n and the pool with
n: a few hundredths for a hundred requests, several for twenty. What is reserved in full never turns
out larger and keeps nothing.
Rule (preemption): a preemption, which is the proof that too little was kept, takes
``step_fraction`` of K more, once in ``step_ns`` and up to ``penalty_fraction_max``; each
``clean_ns`` without one gives ``regain_fraction`` back.
Properties: the spread needs no model of lengths, prompts counted wrongly are in it too, and it
falls by itself where predictions get better.
Trade-off: the mean is over about 200 completions, so that a pool of few is careful for a while
after one long answer.
Source: the law of large numbers; the steps go as TCP's do, quick to take and slow to give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["Headroom", "HeadroomConfig"]

_COMPLETIONS = 200


@dataclass(frozen=True, slots=True)
class HeadroomConfig:
    """What is kept free beside a policy's own headroom.

    Attributes:
        spread_ratio: Standard deviations of the batch's error that are kept free, 0 to 5. One is
            enough: whoever comes is asked again at every step, when less is left to be wrong about.
        spread_fraction_max: No more of the pool is kept for them, 0 to 0.9: two requests that fill
            a pool are a risk that nothing pools.
        step_fraction: Kept after a preemption, 0 to 0.2.
        step_ns: At most one such step in this time, above 0; one overrun preempts many.
        penalty_fraction_max: Steps end here, 0 to 0.9.
        regain_fraction: Given back after ``clean_ns`` without a preemption, 0 to 0.2.
        clean_ns: See above, above 0.
    """

    spread_ratio: float = 1.0
    spread_fraction_max: float = 0.3
    step_fraction: float = 0.02
    step_ns: Nanos = 5 * NS_PER_S
    penalty_fraction_max: float = 0.17
    regain_fraction: float = 0.005
    clean_ns: Nanos = 30 * NS_PER_S

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, most in (
            ("spread_ratio", 5),
            ("spread_fraction_max", 0.9),
            ("step_fraction", 0.2),
            ("penalty_fraction_max", 0.9),
            ("regain_fraction", 0.2),
        ):
            if not 0 <= getattr(self, name) <= most:
                raise ConfigError(
                    f"{name} {getattr(self, name)} is not allowed, allowed: 0 to {most}"
                )
        for name in ("step_ns", "clean_ns"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} {getattr(self, name)} is not allowed, allowed: above 0")


class Headroom:
    """What one replica's mistakes have taught."""

    __slots__ = (
        "_config",
        "_ends",
        "_preemptions_total",
        "_quiet_since_ns",
        "_square",
        "_stepped_ns",
        "penalty_fraction",
        "preemptions",
    )

    def __init__(self, config: HeadroomConfig) -> None:
        """Start with no mistakes."""
        self._config = config
        self._square = 0.0
        self._ends = 0
        self._preemptions_total: int | None = None
        self._stepped_ns: Nanos | None = None
        self._quiet_since_ns: Nanos = 0
        self.penalty_fraction = 0.0
        self.preemptions = 0

    def note_end(self, *, reserved_tokens: int, used_tokens: int) -> None:
        """Take in a request that came to its own end: what it was taken for, and what it was."""
        self._ends = min(self._ends + 1, _COMPLETIONS)
        excess = max(0, used_tokens - reserved_tokens)
        self._square += (excess * excess - self._square) / self._ends

    def note_preemptions(self, total: int, *, now_ns: Nanos) -> bool:
        """Take in the engine's counter; returns whether it has preempted since the last look.

        A counter that fell is that of an engine that was started again.
        """
        before, self._preemptions_total = self._preemptions_total, total
        if before is None or total <= before:
            return False
        self.preemptions += total - before
        self._quiet_since_ns = now_ns
        if self._stepped_ns is None or now_ns - self._stepped_ns >= self._config.step_ns:
            self._stepped_ns = now_ns
            self.penalty_fraction = min(
                self._config.penalty_fraction_max,
                self.penalty_fraction + self._config.step_fraction,
            )
        return True

    def refresh(self, *, now_ns: Nanos) -> None:
        """Give back what time without a preemption has earned."""
        clean_ns = self._config.clean_ns
        while self.penalty_fraction > 0 and now_ns - self._quiet_since_ns >= clean_ns:
            self._quiet_since_ns += clean_ns
            left = self.penalty_fraction - self._config.regain_fraction
            self.penalty_fraction = max(0.0, left)

    def spread_fraction(self, in_flight: int, *, kv_tokens: int) -> float:
        """Return the share of the pool that so many requests may need beyond their estimates."""
        spread = self._config.spread_ratio * math.sqrt(2 * in_flight * self._square)
        return min(self._config.spread_fraction_max, spread / kv_tokens)

    def __repr__(self) -> str:
        """Show the state in one line."""
        return (
            f"Headroom(penalty {self.penalty_fraction:.3f}, error {math.sqrt(2 * self._square):.0f}"
            f" tokens a request, {self.preemptions} preemptions)"
        )
