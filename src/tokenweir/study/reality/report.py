"""What does a comparison with reality tell, as a document and as tables?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tokenweir.core.units import NS_PER_MS
from tokenweir.study.fitting.report import errors_rows
from tokenweir.study.reality.check import Deviation
from tokenweir.study.reality.protocol import CURVE_ALLOWED, FITTED, TESTED, Reality

__all__ = ["deviations_rows", "deviations_table", "reality_document"]

_VERDICTS = {True: "yes", False: "NO", None: ""}


def deviations_rows(deviations: Sequence[Deviation]) -> list[dict[str, Any]]:
    """Return measured and simulated figures."""
    return [
        {
            "figure": row.name,
            "measured": round(row.measured, 6),
            "simulated": round(row.simulated, 6),
            "deviation": None if row.fraction is None else round(row.fraction, 6),
            "allowed": row.allowed,
            "is_met": row.is_met,
        }
        for row in deviations
    ]


def deviations_table(deviations: Sequence[Deviation], *, title: str) -> Table:
    """Return one line per figure."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("figure", no_wrap=True)
    for heading in ("measured", "simulated", "deviation", "allowed", "met"):
        table.add_column(heading, justify="right")
    for row in deviations:
        table.add_row(
            row.name,
            _number(row.measured),
            _number(row.simulated),
            "" if row.fraction is None else f"{row.fraction:+.1%}",
            "" if row.allowed is None else f"{row.allowed:.0%}",
            _VERDICTS[row.is_met],
        )
    return table


def reality_document(found: Reality) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "step_overhead_ms": round(found.overhead_ns / NS_PER_MS, 6),
        "fitted": {"run": FITTED.run, "figures": deviations_rows(found.fitted)},
        "tested": {
            "run": TESTED.run,
            "figures": deviations_rows(found.tested),
            "preemptions": found.preemptions,
        },
        "decode_curve": {
            "errors": errors_rows((found.values, found.contexts)),
            "allowed_p90": CURVE_ALLOWED,
        },
        "is_met": found.is_met,
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
