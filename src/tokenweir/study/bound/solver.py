"""What are the shares and the prices of a program? HiGHS finds them, in a thread of its own.

Prices are what one more bucket of a resource would be worth; ``certified_bound`` turns them into a
bound that holds whatever the solver's tolerances, so they need not be exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from tokenweir.core.errors import InvariantError
from tokenweir.study.bound.program import Program
from tokenweir.study.bound.requests import Floats

__all__ = ["Solution", "solve"]

# How often the wait for the solver looks for Ctrl-C, and how long it then waits for it to stop.
_LOOK_S = 0.1
_STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Solution:
    """A solved program.

    Attributes:
        shares: Of each request, 0 to 1, shape (requests,).
        prices: Of each resource, value of one more bucket, 0 or more, shape (buckets,).
    """

    shares: Floats = field(repr=False)
    prices: dict[str, Floats] = field(repr=False)


def solve(program: Program, values: Floats) -> Solution:
    """Maximise the value of what is served.

    Args:
        program: The program.
        values: Of each request, 0 or more, shape (requests,).

    Raises:
        InvariantError: The solver gives up; serving nothing is always feasible.
        KeyboardInterrupt: Ctrl-C, after the solver has been told to stop.
    """
    # Values near 1 keep the solver's absolute tolerances small beside them.
    unit = float(values.max()) or 1.0
    solver = _Silent()  # type: ignore[no-untyped-call]  # highspy annotates only in part
    solver.HandleUserInterrupt = True
    solver.passModel(_model(program, values / unit))
    solver.startSolve()
    try:
        while not solver.wait(_LOOK_S)[0]:
            pass
    except KeyboardInterrupt:
        solver.cancelSolve()  # type: ignore[no-untyped-call]  # as above
        solver.wait(_STOP_S)
        raise
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise InvariantError(
            f"the solver ended with {solver.modelStatusToString(status)} on a program of "
            f"{program.columns} columns, which always has a solution"
        )
    found = solver.getSolution()
    dual = np.asarray(found.row_dual)
    return Solution(
        np.clip(np.asarray(found.col_value)[: len(values)], 0.0, 1.0),
        {
            name: np.maximum(-dual[row : row + program.buckets_count], 0.0) * unit
            for name, row in program.capacity_rows.items()
        },
    )


class _Silent(highspy.Highs):
    """A solver that prints no banner on stdout, where JSON goes."""

    def enableCallbacks(self) -> None:
        """Turn output off first: this is the first call of the constructor that prints."""
        self.setOptionValue("output_flag", False)  # noqa: FBT003 - the solver's own signature
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # as above


def _model(program: Program, values: Floats) -> highspy.HighsLp:
    cost = np.zeros(program.columns)
    cost[: len(values)] = -values
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = program.columns, len(program.row_lower)
    model.col_cost_ = cost
    model.col_lower_ = np.zeros(program.columns)
    model.col_upper_ = program.column_upper
    model.row_lower_ = program.row_lower
    model.row_upper_ = program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = program.starts.astype(np.int32)
    model.a_matrix_.index_ = program.indexes.astype(np.int32)
    model.a_matrix_.value_ = program.coefficients
    return model
