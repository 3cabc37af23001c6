"""What do several distributions, the most specific first, say together?

Model: levels with weights that add up to 1; F = sum of weight x F of each level.
Rule: ``sample`` draws from F given what an answer has reached, ``quantile`` inverts it.
Trade-off: what a level leaves unresolved ends a fixed step above its largest length, or at the
prior where that is much of it; beyond everything an answer goes on by the same step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TypeAlias

from tokenweir.core.lengths.window import LengthWindow

__all__ = [
    "BEYOND_TOKENS",
    "Blend",
    "Forecast",
    "cold",
    "place_of",
    "quantile",
    "sample",
    "unresolved",
]

BEYOND_TOKENS = 64
# An unresolved part larger than this is taken to reach up to the prior.
_UNRESOLVED_FRACTION_MAX = 0.1

# Weight and distribution of a level, most specific first; the weights add up to 1.
Blend: TypeAlias = list[tuple[float, LengthWindow]]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the conformal mode promised for one request when it came, to be judged at its end.

    Attributes:
        tokens: Not to be passed.
        level: With this probability.
        below: F just below ``tokens``.
        upto: F at ``tokens``; 1 where they are the declared maximum.
        window: Whose level it was.
        observed: What that window had seen by then.
    """

    tokens: int
    level: float
    below: float
    upto: float
    window: LengthWindow
    observed: int

    def is_missed_by(self, length: int, *, share: float) -> bool:
        """Tell whether a length is beyond the level.

        Args:
            length: Of the answer.
            share: Where in the step of F at ``tokens`` the answer is taken to lie, 0 to 1: where
                many answers share one length, misses could not be as rare as allowed otherwise.
        """
        if length != self.tokens:
            return length > self.tokens
        return self.below + share * (self.upto - self.below) > self.level


def place_of(blend: Blend, length: int) -> tuple[float, float]:
    """Return F just below a length and at it."""
    below = upto = 0.0
    for weight, window in blend:
        before, at = window.bounds(length)
        below += weight * before
        upto += weight * at
    return below, upto


def cold(prior: int, *, generated: int) -> int:
    """Return the length taken where nothing is known: the prior, then step by step."""
    return prior if generated < prior else generated + BEYOND_TOKENS


def unresolved(window: LengthWindow, *, generated: int, prior: int) -> int:
    """Return the length taken for an answer that is longer than all that ended."""
    largest = window.largest_tokens
    if generated >= largest:
        return generated + BEYOND_TOKENS
    beyond = largest + BEYOND_TOKENS
    # Where many were cut short, the largest of them says next to nothing. Where few were, it is
    # near the truth, and a prior would add up over many draws.
    if beyond < prior and window.survival(largest) > _UNRESOLVED_FRACTION_MAX:
        return prior
    return beyond


def sample(u: float, blend: Blend, *, generated: int, prior: int) -> int:
    """Draw from the blend given that the answer is longer than ``generated``.

    ``u`` chooses the level by its share of what is left and the length within it by the remainder,
    which costs one search where inverting the blend would take a dozen.
    """
    masses = [weight * window.survival(generated) for weight, window in blend]
    rest = u * sum(masses)
    chosen = None
    for (weight, window), mass in zip(blend, masses, strict=True):
        if mass <= 0.0:
            continue
        chosen = window
        survival = min(rest, mass) / weight
        if rest < mass:
            break
        rest -= mass
    if chosen is None:
        return generated + BEYOND_TOKENS
    tokens = chosen.inverse(1.0 - survival, generated=generated)
    return unresolved(chosen, generated=generated, prior=prior) if tokens is None else tokens


def quantile(q: float, blend: Blend, *, generated: int, prior: int) -> int:
    """Return the least length above ``generated`` at which the blend, given it, reaches ``q``."""
    # Per level that has anything left: weight, where it steps, to which F, where its rest ends.
    levels: list[tuple[float, array[int], array[float], int]] = []
    mass = 0.0
    low = high = 0
    for weight, window in blend:
        left = window.survival(generated)
        if left <= 0.0:
            continue
        beyond = unresolved(window, generated=generated, prior=prior)
        tokens = window.inverse(1.0 - (1.0 - q) * left, generated=generated)
        if tokens is None:
            tokens = beyond
        if not levels:
            low = high = tokens
        elif tokens < low:
            low = tokens
        elif tokens > high:
            high = tokens
        levels.append((weight, *window.steps(), beyond))
        mass += weight * left
    if not levels:
        return generated + BEYOND_TOKENS
    # Between the least and the largest quantile of the levels: usually they are near.
    allowed = (1.0 - q) * mass
    while low < high:
        middle = (low + high) // 2
        longer = 0.0
        for weight, ends, cdf, beyond in levels:
            if middle < beyond:
                index = bisect_right(ends, middle)
                longer += weight * (1.0 - cdf[index - 1]) if index else weight
        if longer <= allowed:
            high = middle
        else:
            low = middle + 1
    return low
