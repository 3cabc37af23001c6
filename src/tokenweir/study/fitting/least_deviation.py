"""Which coefficients, none of them negative, come closest to many measured values?

Model: m measured values y, a row of features per value, weights w; wanted are coefficients x >= 0.
Rule: least sum of w |features x / y - 1|: the sum of relative deviations, so that one value that
went wrong moves the rest as little as it does a median. It is a linear program; solved is its dual,
which has as many rows as there are coefficients, however many values there are, and the
coefficients are its prices.
Trade-off: least squares would be smoother, and follow outliers.
Source: L1 regression as in Koenker and Bassett, Regression Quantiles, Econometrica 1978.
"""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from tokenweir.core.errors import InvariantError

__all__ = ["least_deviation"]

Floats = NDArray[np.float64]


def least_deviation(features: Floats, values: Floats, *, weights: Floats) -> tuple[Floats, float]:
    """Return the best coefficients and their weighted sum of relative deviations.

    Args:
        features: 0 or more, shape (values, coefficients).
        values: Above 0, shape (values,).
        weights: Above 0, shape (values,).

    Raises:
        InvariantError: The solver gives up; coefficients of 0 are always feasible.
    """
    relative = features / values[:, None]
    # Nanoseconds and pairs of tokens differ by ten orders of magnitude; the solver sees about 1.
    units = relative.max(axis=0)
    units[units == 0] = 1.0
    rows, columns = relative.shape
    solver = _Silent()  # type: ignore[no-untyped-call]  # highspy annotates only in part
    solver.passModel(_dual(relative / units, weights=weights, rows=rows, columns=columns))
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise InvariantError(
            f"the solver ended with {solver.modelStatusToString(status)} on a fit of {rows} values "
            f"and {columns} coefficients, which always has a solution"
        )
    prices = -np.asarray(solver.getSolution().row_dual, dtype=np.float64)
    coefficients = np.maximum(prices, 0.0) / units
    return coefficients, float(np.abs(relative @ coefficients - 1.0) @ weights)


class _Silent(highspy.Highs):
    """A solver that prints no banner on stdout, where JSON goes."""

    def enableCallbacks(self) -> None:
        """Turn output off first: this is the first call of the constructor that prints."""
        self.setOptionValue("output_flag", False)  # noqa: FBT003 - the solver's own signature
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # as above


def _dual(relative: Floats, *, weights: Floats, rows: int, columns: int) -> highspy.HighsLp:
    """Return: least -sum u, where u is within -w and w, and every feature's sum of u is <= 0."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = rows, columns
    model.col_cost_ = -np.ones(rows)
    model.col_lower_, model.col_upper_ = -weights, weights
    model.row_lower_ = np.full(columns, -highspy.kHighsInf)
    model.row_upper_ = np.zeros(columns)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, rows * columns + 1, columns, dtype=np.int32)
    model.a_matrix_.index_ = np.tile(np.arange(columns, dtype=np.int32), rows)
    model.a_matrix_.value_ = relative.ravel()
    return model
