"""How much slower than its profile is an engine now?

Model: m = dispatch to first token, p = what the profile said of the same prompts (see ``guards``),
of each request at its first token.
Rule: slowness = moving mean of m / moving mean of p, with a half-life of 10 s, within 1 and 3;
predicted reading times are multiplied by it. A mean of quotients would be one of short prompts,
which wait for the running step, and say little of how fast an engine reads.
Properties: of an engine that is throttled, shared or simply not the one of its profile no more is
promised than it can keep. It is never taken to be faster than its profile: one that is less than
busy looks so.
Trade-off: a few tens of requests are promised too much before the first of them tells.
"""

from __future__ import annotations

from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["Slowness"]

_HALF_LIFE_NS = 10 * NS_PER_S
_RATIO_MAX = 3.0


class Slowness:
    """The moving mean of one replica."""

    __slots__ = ("_measured_ns", "_noted_ns", "_predicted_ns", "ratio")

    def __init__(self) -> None:
        """Start by believing the profile."""
        self._measured_ns = 0.0
        self._predicted_ns = 0.0
        self._noted_ns: Nanos | None = None
        self.ratio = 1.0

    def note(self, measured_ns: Nanos, *, predicted_ns: Nanos, now_ns: Nanos) -> None:
        """Take in how long a first token took, and what the profile said when it was sent."""
        if predicted_ns <= 0:
            return
        if self._noted_ns is None:
            self._measured_ns = self._predicted_ns = float(predicted_ns)
            self._noted_ns = now_ns
        since_ns = now_ns - self._noted_ns
        self._noted_ns = now_ns
        share = 1.0 - 0.5 ** (since_ns / _HALF_LIFE_NS)
        # One that was lost for a minute must not outweigh all others.
        measured_ns = min(measured_ns, int(2 * _RATIO_MAX * predicted_ns))
        self._measured_ns += share * (measured_ns - self._measured_ns)
        self._predicted_ns += share * (predicted_ns - self._predicted_ns)
        self.ratio = min(_RATIO_MAX, max(1.0, self._measured_ns / self._predicted_ns))

    def __repr__(self) -> str:
        """Show the state in one line."""
        return f"Slowness({self.ratio:.2f})"
