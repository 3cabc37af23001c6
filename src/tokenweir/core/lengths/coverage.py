"""Do the predicted lengths hold?

Model: every observation is compared with what was known just before it, for all modes at once,
whichever is in use. The probability integral transform of a length is its place in the predicted
distribution: uniform if the prediction is right.
Rule: where an answer was cut short, or many share one length, its place is an interval; it is put
at a point of it that runs through a fixed equidistributed sequence.
Source: Dawid 1984, prequential; Czado, Gneiting and Held 2009 for counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.lengths.config import LengthMode

__all__ = ["CoverageTally", "LengthCoverage", "ModeCoverage"]

_DECILES = 10


@dataclass(frozen=True, slots=True)
class ModeCoverage:
    """How often the length was within what a mode promises.

    Attributes:
        mode: Which.
        target_fraction: What it promises: 0.5 for the median of ``sampled``, the level of
            ``conformal``, 1 for ``declared``.
        observations: Compared.
        hits: Within.
    """

    mode: LengthMode
    target_fraction: float
    observations: int
    hits: int

    @property
    def fraction(self) -> float | None:
        """Share of hits, None while there is nothing to compare."""
        return self.hits / self.observations if self.observations else None


@dataclass(frozen=True, slots=True)
class LengthCoverage:
    """Counts since the start, which only grow; the size of this view is fixed.

    Attributes:
        modes: One row per mode.
        pit_deciles: Observations by tenth of the predicted distribution; equal if it is right.
        observations: Compared with a distribution.
        censored: Of these, ended early or at their maximum.
        cold: Not compared, since too little was known; they are in the ``declared`` row only.
        cold_hits: Of these, not longer than what was predicted.
        buckets: Distributions kept now, the model-wide one included.
    """

    modes: tuple[ModeCoverage, ...]
    pit_deciles: tuple[int, ...]
    observations: int
    censored: int
    cold: int
    cold_hits: int
    buckets: int


class CoverageTally:
    """The counters behind ``LengthCoverage``."""

    __slots__ = (
        "_censored",
        "_cold",
        "_cold_hits",
        "_conformal_hits",
        "_deciles",
        "_declared_hits",
        "_observations",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self._deciles = [0] * _DECILES
        self._observations = 0
        self._censored = 0
        self._conformal_hits = 0
        self._declared_hits = 0
        self._cold = 0
        self._cold_hits = 0

    def note(
        self, *, place: float, is_censored: bool, is_conformal_hit: bool, is_declared_hit: bool
    ) -> None:
        """Count one observation at its place in the predicted distribution, 0 to 1."""
        self._observations += 1
        self._deciles[min(int(place * _DECILES), _DECILES - 1)] += 1
        self._censored += is_censored
        self._conformal_hits += is_conformal_hit
        self._declared_hits += is_declared_hit

    def note_cold(self, *, is_hit: bool, is_declared_hit: bool) -> None:
        """Count one observation for which there was no distribution."""
        self._cold += 1
        self._cold_hits += is_hit
        self._declared_hits += is_declared_hit

    def view(self, *, level: float, buckets: int) -> LengthCoverage:
        """Return the counts as they are now."""
        compared = self._observations
        return LengthCoverage(
            modes=(
                ModeCoverage("sampled", 0.5, compared, sum(self._deciles[: _DECILES // 2])),
                ModeCoverage("conformal", level, compared, self._conformal_hits),
                ModeCoverage("declared", 1.0, compared + self._cold, self._declared_hits),
            ),
            pit_deciles=tuple(self._deciles),
            observations=compared,
            censored=self._censored,
            cold=self._cold,
            cold_hits=self._cold_hits,
            buckets=buckets,
        )
