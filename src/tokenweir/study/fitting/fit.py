"""Which step-time model comes closest to what was measured?

Model: T = max(a0 + a1 n, b0 + b1 n) + k cK + B cR + a cA (symbols as in ``core/profile.py``).
Rule: with the bend of the two arms at n*, every such T with coefficients of 0 or more, b1 >= a1 and
b0 <= a0 is x1 + x2 n + x3 max(n, n*) + x4 k + x5 B + x6 a with x >= 0, and the other way round:
a0 = x1 + x3 n*, a1 = x2, b0 = x1, b1 = x2 + x3. So for each n* the fit is a linear program, and the
best n* is looked for among the numbers of tokens that were measured.
Properties: each curve has the same weight, so that 5,000 timings of mixed steps do not drown 70 of
decoding; a term that no curve varies is taken from another profile, which the report says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.study.fitting.curves import Curve, Reading, predicted_ns
from tokenweir.study.fitting.least_deviation import Floats, least_deviation

__all__ = ["CurveError", "Fit", "curve_errors", "error_of", "fit_profile", "with_step_overhead"]

# Places of the bend that are tried.
_BENDS_MAX = 32
_VALUES_MIN = 3
# Of one curve, thinned evenly above that; errors are those of all values.
_CURVE_POINTS_MAX = 2_000
# With fewer values than this per coefficient a fit says little about anything else.
_VALUES_PER_COEFFICIENT = 4


@dataclass(frozen=True, slots=True)
class CurveError:
    """How far a profile is from one curve.

    Attributes:
        name: The curve.
        points: Its values.
        median: Of the relative errors, without sign.
        p90: As above.
        worst: As above.
        bias: Median of the relative errors, with sign; above 0 the profile is too slow.
        overhead_ns: The constant of the curve that belongs to no step.
    """

    name: str
    points: int
    median: float
    p90: float
    worst: float
    bias: float
    overhead_ns: Nanos = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted profile.

    Attributes:
        profile: Ready to be used.
        errors: Per curve.
        borrowed: Fields that nothing measured, taken from another profile.
        coefficients: That were fitted.
    """

    profile: EngineProfile
    errors: tuple[CurveError, ...]
    borrowed: tuple[str, ...]
    coefficients: int

    @property
    def is_thin(self) -> bool:
        """Whether so few values were measured that others may well lie elsewhere."""
        values = sum(error.points for error in self.errors)
        return values < _VALUES_PER_COEFFICIENT * self.coefficients


def fit_profile(
    reading: Reading,
    *,
    like: EngineProfile,
    name: str,
    step_overhead_ns: Nanos = 0,
    on_bend: Callable[[int, int], None] = lambda done, total: None,
) -> Fit:
    """Fit a profile to curves.

    Args:
        reading: The curves; sizes that it tells are already in ``like``.
        like: Gives the sizes, and every term that was not measured.
        name: Of the new profile.
        step_overhead_ns: Added to every step afterwards, for what kernels do not show; the errors
            are those without it.
        on_bend: Called with (done, total) after each place of the bend that was tried.

    Raises:
        ConfigError: There are too few values to say anything.
    """
    curves = tuple(_thinned(curve) for curve in reading.curves)
    columns = _Columns(curves)
    fixed, varying, borrowed = _terms(columns, like=like)
    values = np.array([point.value_ns for curve in curves for point in curve.points]) - fixed
    _check(values, borrowed=borrowed, like=like)
    weights = np.concatenate([np.full(len(c.points), 1 / len(c.points)) for c in curves])
    overheads = _overhead_columns(curves)
    bends = columns.bends()
    best: tuple[float, float, Floats] | None = None
    for done, bend in enumerate(bends, start=1):
        features = [*columns.arms(bend), *varying.values(), *overheads]
        found, deviation = least_deviation(np.column_stack(features), values, weights=weights)
        if best is None or deviation < best[0]:
            best = (deviation, bend, found)
        on_bend(done, len(bends))
    assert best is not None
    _, bend, found = best
    profile = _profile_of(found, bend=bend, varying=tuple(varying), like=like)
    profile = dataclasses.replace(profile, name=name, source=reading.source)
    constants = iter(found[3 + len(varying) :])
    overhead_ns = {c.name: int(next(constants)) for c in curves if c.has_overhead}
    errors = curve_errors(reading.curves, profile, overhead_ns=overhead_ns)
    return Fit(
        with_step_overhead(profile, step_overhead_ns),
        errors,
        borrowed=tuple(borrowed),
        coefficients=3 + len(varying) + len(overheads),
    )


def with_step_overhead(profile: EngineProfile, overhead_ns: Nanos) -> EngineProfile:
    """Return a profile whose every step takes so much longer."""
    has_arms = profile.compute_token_ns > 0
    return dataclasses.replace(
        profile,
        step_ns=profile.step_ns + overhead_ns,
        compute_step_ns=profile.compute_step_ns + overhead_ns if has_arms else 0,
    )


def curve_errors(
    curves: Sequence[Curve], profile: EngineProfile, *, overhead_ns: dict[str, Nanos] | None = None
) -> tuple[CurveError, ...]:
    """Compare a profile with curves, its own or others.

    Args:
        curves: What was measured.
        profile: What is to be judged.
        overhead_ns: Constants by curve; where one is missing it is the least that fits: the median
            of what the profile leaves unexplained.
    """
    return tuple(
        _curve_error(curve, profile, overhead_ns=(overhead_ns or {}).get(curve.name))
        for curve in curves
    )


def _curve_error(curve: Curve, profile: EngineProfile, *, overhead_ns: Nanos | None) -> CurveError:
    values = np.array([point.value_ns for point in curve.points])
    steps_ns = np.array([predicted_ns(point, profile) for point in curve.points])
    if not curve.has_overhead:
        overhead_ns = 0
    elif overhead_ns is None:
        overhead_ns = max(0, int(np.median(values - steps_ns)))
    return error_of(curve.name, (steps_ns + overhead_ns) / values - 1.0, overhead_ns=overhead_ns)


def error_of(name: str, errors: Sequence[float] | Floats, *, overhead_ns: Nanos = 0) -> CurveError:
    """Sum relative errors up, of which there is at least one."""
    signed = np.asarray(errors, dtype=np.float64)
    sizes = np.abs(signed)
    return CurveError(
        name,
        len(signed),
        median=float(np.median(sizes)),
        p90=float(np.quantile(sizes, 0.9)),
        worst=float(sizes.max()),
        bias=float(np.median(signed)),
        overhead_ns=overhead_ns,
    )


class _Columns:
    """What each measured value holds, from the steps in it."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        points = [point for curve in curves for point in curve.points]
        steps = [step for point in points for step in point.steps]
        owners = [owner for owner, point in enumerate(points) for _ in point.steps]
        self._owners = np.array(owners, dtype=np.int64)
        self._count = len(points)
        self._shares = np.array([step.share for step in steps])
        self._tokens = np.array([step.tokens for step in steps], dtype=np.float64)
        self.terms = {
            "kv_token_ns": self._sum(np.array([step.kv_tokens for step in steps])),
            "sequence_ns": self._sum(np.array([step.sequences for step in steps])),
            "attention_ns": self._sum(np.array([step.attention for step in steps])),
        }

    def arms(self, bend: float) -> tuple[Floats, Floats, Floats]:
        """Return the columns of the constant, of the tokens, and of what bends; 0 is no bend."""
        bent = np.maximum(self._tokens, bend) if bend else np.zeros(len(self._tokens))
        ones = np.ones(len(self._tokens))
        return self._sum(ones), self._sum(self._tokens), self._sum(bent)

    def bends(self) -> list[float]:
        """Return the numbers of tokens at which the arms may cross, thinned evenly.

        Neither the least nor the most that was measured is one: beyond it there is only one arm.
        """
        inner = np.unique(self._tokens)[1:-1]
        if not len(inner):
            return [0.0]
        places = np.unique(np.linspace(0, len(inner) - 1, _BENDS_MAX).round().astype(int))
        return [0.0, *(float(inner[place]) for place in places)]

    def _sum(self, per_step: Floats) -> Floats:
        weights = self._shares * per_step
        return np.bincount(self._owners, weights, self._count).astype(np.float64)


def _thinned(curve: Curve) -> Curve:
    """Return a curve of which no more values are left than tell something new."""
    every = -(-len(curve.points) // _CURVE_POINTS_MAX)
    return dataclasses.replace(curve, points=curve.points[::every])


def _terms(
    columns: _Columns, *, like: EngineProfile
) -> tuple[Floats, dict[str, Floats], list[str]]:
    """Return what the borrowed terms add to each value, the columns to fit, and who is borrowed."""
    varying: dict[str, Floats] = {}
    borrowed: list[str] = []
    fixed = np.zeros(len(columns.terms["kv_token_ns"]))
    for name, column in columns.terms.items():
        if len(column) and column.max() > column.min():
            varying[name] = column
        else:
            borrowed.append(name)
            fixed += column * getattr(like, name)
    return fixed, varying, borrowed


def _check(values: Floats, *, borrowed: Sequence[str], like: EngineProfile) -> None:
    if len(values) < _VALUES_MIN:
        raise ConfigError(
            f"{len(values)} measured values cannot be fitted, allowed: {_VALUES_MIN} or more"
        )
    if not (values > 0).all():
        raise ConfigError(
            f"what {like.name} gives for {', '.join(borrowed)} is more than was measured, allowed: "
            "another profile to be like"
        )


def _overhead_columns(curves: Sequence[Curve]) -> list[Floats]:
    """Return a column of ones for each curve that has a constant of its own."""
    owners = np.array([curve.name for curve in curves for _ in curve.points])
    return [(owners == curve.name).astype(np.float64) for curve in curves if curve.has_overhead]


def _profile_of(
    found: Floats, *, bend: float, varying: Sequence[str], like: EngineProfile
) -> EngineProfile:
    base, token, bent = (float(part) for part in found[:3])
    terms: dict[str, Any] = {
        term: round(float(price), 4) for term, price in zip(varying, found[3:], strict=False)
    }
    has_arms = bent > 0
    return dataclasses.replace(
        like,
        step_ns=max(1, int(base + bent * bend)),
        token_ns=round(token, 1),
        compute_step_ns=int(base) if has_arms else 0,
        compute_token_ns=round(token + bent, 1) if has_arms else 0.0,
        **terms,
    )
