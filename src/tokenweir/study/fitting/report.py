"""What does a fit tell, as a document and as tables?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tokenweir.core.units import NS_PER_MS
from tokenweir.study.fitting.fit import CurveError, Fit

__all__ = ["errors_rows", "errors_table", "fit_document", "sourced"]

_HEADINGS = ("values", "error\nmedian", "error\np90", "error\nworst", "bias", "overhead\nms")
_BORROWED = "not measured here, taken from"


def sourced(fit: Fit, *, like: str, step_overhead_ns: int) -> Fit:
    """Return the fit with a source that says how good it is and what it rests on."""
    errors = ", ".join(
        f"{error.name} {error.median:.1%} median and {error.p90:.1%} p90 error"
        for error in fit.errors
    )
    source = f"{fit.profile.source}: {errors}"
    if step_overhead_ns:
        source += f"; {step_overhead_ns / NS_PER_MS:.2f} ms added to every step"
    if fit.borrowed:
        source += f"; {', '.join(fit.borrowed)} {_BORROWED} {like}"
    if fit.is_thin:
        source += f"; few values for {fit.coefficients} coefficients"
    return dataclasses.replace(fit, profile=dataclasses.replace(fit.profile, source=source))


def fit_document(fit: Fit) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "profile": dataclasses.asdict(fit.profile),
        "errors": errors_rows(fit.errors),
        "borrowed": list(fit.borrowed),
        "is_thin": fit.is_thin,
    }


def errors_rows(errors: Sequence[CurveError]) -> list[dict[str, Any]]:
    """Return the errors of each curve, as fractions."""
    return [
        {
            "curve": error.name,
            "points": error.points,
            "error_median": round(error.median, 6),
            "error_p90": round(error.p90, 6),
            "error_max": round(error.worst, 6),
            "bias": round(error.bias, 6),
            "overhead_ms": round(error.overhead_ns / NS_PER_MS, 6),
        }
        for error in errors
    ]


def errors_table(errors: Sequence[CurveError], *, title: str) -> Table:
    """Return one line per curve."""
    table = Table(title=title, title_justify="left")
    table.add_column("curve", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for error in errors:
        table.add_row(
            error.name,
            f"{error.points:,}",
            *(f"{part:.1%}" for part in (error.median, error.p90, error.worst)),
            f"{error.bias:+.1%}",
            f"{error.overhead_ns / NS_PER_MS:.1f}" if error.overhead_ns else "",
        )
    return table
