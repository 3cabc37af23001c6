"""How fast does reserved capacity become free?

Model: tokens of closed reservations, counted in bins of 1 s over the last 10 s.
Rule: rate = max(window rate, decayed peak). The peak matters because a pool that is half idle frees
half as much as it could, and a wait predicted from that would be twice too long. For the same
reason the peak decays only over bins in which something did not fit: a quiet night says nothing of
how fast the pool is.
Trade-off: after a real loss of capacity the peak is believed for about a minute of overload.
"""

from __future__ import annotations

from collections import deque

from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["ServiceRate"]

_BIN_NS = NS_PER_S
_BINS = 10
# Per bin in which something did not fit; half after 35 of them.
_PEAK_DECAY = 0.98


class ServiceRate:
    """Tokens per second that a pool gives back."""

    def __init__(self, *, hint_tokens_per_s: float | None = None) -> None:
        """Start from a profile's rate, or knowing nothing."""
        self._closed: deque[int] = deque(maxlen=_BINS)
        self._current_tokens = 0
        self._bin_end_ns: Nanos | None = None
        self._is_short = False
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
        for index in range(min(bins, _BINS)):
            self._closed.append(self._current_tokens if index == 0 else 0)
            self._current_tokens = 0
            window_rate = sum(self._closed) / len(self._closed) * (NS_PER_S / _BIN_NS)
            peak = self._rate * _PEAK_DECAY if self._is_short else self._rate
            self._is_short = False
            self._rate = max(window_rate, peak)
        self._bin_end_ns += bins * _BIN_NS
