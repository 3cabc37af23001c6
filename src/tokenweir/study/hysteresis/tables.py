"""How is hysteresis shown in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

__all__ = ["areas_table", "steps_table"]


def areas_table(rows: Sequence[dict[str, Any]], *, title: str) -> Table:
    """Return one line per policy."""
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for heading in ("area", "± 95 %", "attempts per\nunique request", "seeds"):
        table.add_column(heading, justify="right")
    for row in rows:
        half = row["area_ci95"]
        table.add_row(
            row["policy"],
            f"{row['area']:.4f}",
            "-" if half is None else f"{half:.4f}",
            f"{row['attempts_per_unique']:.2f}",
            str(row["seeds"]),
        )
    return table


def steps_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one line per load: goodput per unique request on the way up and down."""
    table = Table(title="Goodput per unique request, up / down", title_justify="left")
    table.add_column("load", justify="right")
    for row in rows:
        table.add_column(row["policy"], justify="right")
    for number, step in enumerate(rows[0]["steps"]):
        cells = [
            f"{row['steps'][number]['up']:.3f} / {row['steps'][number]['down']:.3f}" for row in rows
        ]
        table.add_row(f"{step['load']:g}", *cells)
    return table
