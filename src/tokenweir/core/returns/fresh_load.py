"""How much of the capacity do first attempts ask for?

Model: expected tokens of first attempts, admitted or not, in bins of half a second.
Rule: load = sum of the last 10 bins / 5 s; share left for returns = 0.9 - load / rate, kept between
the configured bounds.
Model of what comes: h = time until a slot; S = share of the half seconds of about the last
minute in which somebody was refused for want of room. A spike will be over in a minute, and an
overload that has lasted will not.
Rule: share at h = share now + (hoped share - share now) (1 - S) (h / 60 s)^2.
Trade-off: a shorter window would hand out slots by the noise of arrivals, a longer one would give
returns too little for longer after a spike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tokenweir.core.returns.config import ReturnConfig
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["FreshLoad", "Shares", "Shortness", "return_share"]

_BIN_NS = NS_PER_S // 2
_BINS = 10
_BINS_PER_S = NS_PER_S // _BIN_NS
# A pool that is filled to the brim has a queue, and refuses first attempts.
_FILLED_FRACTION = 0.9


# Of how fast lasting overload is believed: half after 42 s of it.
_SHORTNESS_GAIN = 1.0 / 120.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Share of capacity that returns get now, and in the time of the longest advice."""

    near: float
    far: float

    def at(self, delay_fraction: float) -> float:
        """Return the share at a part, 0 to 1, of the longest advice from now."""
        return self.near + (self.far - self.near) * delay_fraction * delay_fraction


class Shortness:
    """For what part of the last minute was somebody refused for want of room?"""

    __slots__ = ("_bin", "_is_short", "fraction")

    def __init__(self) -> None:
        """Start with nobody refused."""
        self.fraction = 0.0
        self._bin: int | None = None
        self._is_short = False

    def note(self, *, now_ns: Nanos) -> None:
        """Note that somebody was refused."""
        index = now_ns // _BIN_NS
        if self._bin is not None and index > self._bin:
            kept = (1.0 - _SHORTNESS_GAIN) ** (index - self._bin - 1)
            short = 1.0 if self._is_short else 0.0
            self.fraction += (short - self.fraction) * _SHORTNESS_GAIN
            self.fraction *= kept
        self._bin = index
        self._is_short = True


class FreshLoad:
    """Tokens per second that first attempts ask for."""

    __slots__ = ("_bin", "_bins", "_current_tokens", "_steady_tokens", "_tokens")

    def __init__(self) -> None:
        """Start with nobody having asked."""
        self._bins: deque[int] = deque([0] * _BINS, maxlen=_BINS)
        self._tokens = 0
        self._current_tokens = 0
        # Of the least loaded second; None until it is asked for, in each bin.
        self._steady_tokens: int | None = None
        self._bin: int | None = None

    def note(self, tokens: int, *, now_ns: Nanos) -> None:
        """Count a first attempt."""
        self._roll(now_ns)
        self._current_tokens += tokens

    def tokens_per_s(self, *, now_ns: Nanos) -> float:
        """Return the load over the last whole bins."""
        self._roll(now_ns)
        return self._tokens * NS_PER_S / (_BINS * _BIN_NS)

    def steady_tokens_per_s(self, *, now_ns: Nanos) -> float:
        """Return the load of the least loaded second of them: what a burst does not raise."""
        self._roll(now_ns)
        if self._steady_tokens is None:
            bins = list(self._bins)
            seconds = [sum(bins[i : i + _BINS_PER_S]) for i in range(0, _BINS, _BINS_PER_S)]
            self._steady_tokens = min(seconds)
        return float(self._steady_tokens)

    def _roll(self, now_ns: Nanos) -> None:
        index = now_ns // _BIN_NS
        if self._bin is None:
            self._bin = index
        for _ in range(min(index - self._bin, _BINS + 1)):
            self._tokens += self._current_tokens - self._bins[0]
            self._bins.append(self._current_tokens)
            self._current_tokens = 0
            self._steady_tokens = None
        self._bin = index


def return_share(load_per_s: float, *, rate_per_s: float, config: ReturnConfig) -> float:
    """Return the share of capacity that returns get."""
    left = _FILLED_FRACTION - load_per_s / rate_per_s if rate_per_s > 0 else 0.0
    return min(max(left, config.share_min), config.share_max)
