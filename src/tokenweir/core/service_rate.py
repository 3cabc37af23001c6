"""How fast does reserved capacity become free?

Model: tokens of closed reservations in bins of 1 s. A bin is saturated when something did not fit
in it and in the one before: then what was freed is all that could be.
Rule: after a saturated bin, rate = max(mean of the last 10 saturated bins, decayed rate). Other
bins can only raise a rate that is known: a pool that is asked for little frees little, however fast
it is, and a wait predicted from that would turn away what could be served.
Trade-off: until two seconds of saturation have been seen nothing is known; after a real loss of
capacity the old rate is believed for about a minute of overload.
"""

from __future__ import annotations

from collections import deque

from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["ServiceRate"]

_BIN_NS = NS_PER_S
_BINS = 10
# Per saturated bin; half after 35 of them.
_DECAY = 0.98


class ServiceRate:
    """Tokens per second that a saturated pool gives back."""

    def __init__(self, *, hint_tokens_per_s: float | None = None) -> None:
        """Start from a profile's rate, or knowing nothing."""
        self._recent: deque[int] = deque(maxlen=_BINS)
        self._saturated: deque[int] = deque(maxlen=_BINS)
        self._current_tokens = 0
        self._bin_end_ns: Nanos | None = None
        self._is_short = False
        self._was_short = False
        self._rate = hint_tokens_per_s or 0.0

    def note_closed(self, tokens: int, *, now_ns: Nanos) -> None:
        """Count a reservation that was closed."""
        self._roll(now_ns)
        self._current_tokens += tokens

    def note_short(self, *, now_ns: Nanos) -> None:
        """Note that something did not fit, so that what is freed now is all that can be."""
        self._roll(now_ns)
        self._is_short = True

    def tokens_per_s(self, *, now_ns: Nanos) -> float | None:
        """Return the rate, or None while nothing is known."""
        self._roll(now_ns)
        return self._rate if self._rate > 0 else None

    def _roll(self, now_ns: Nanos) -> None:
        if self._bin_end_ns is None:
            self._bin_end_ns = now_ns + _BIN_NS
            return
        if now_ns < self._bin_end_ns:
            return
        bins = (now_ns - self._bin_end_ns) // _BIN_NS + 1
        # Beyond the window all bins are empty and none is short: they change nothing more.
        for _ in range(min(bins, _BINS + 1)):
            self._end_bin()
        self._bin_end_ns += bins * _BIN_NS

    def _end_bin(self) -> None:
        self._recent.append(self._current_tokens)
        if self._is_short and self._was_short:
            self._saturated.append(self._current_tokens)
            self._rate = max(_per_s(self._saturated), self._rate * _DECAY)
        elif self._rate > 0:
            self._rate = max(_per_s(self._recent), self._rate)
        self._was_short, self._is_short = self._is_short, False
        self._current_tokens = 0


def _per_s(bins: deque[int]) -> float:
    return sum(bins) / len(bins) * (NS_PER_S / _BIN_NS)
