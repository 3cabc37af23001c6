"""How is a measured figure shown beside its target?

Rule: a figure is the median of its rounds, and the rounds are printed with it, so that a reader
sees how much the machine moved them. Nothing is rounded in the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "show"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        name: What was measured.
        unit: Of target and rounds.
        target: What is to be reached, None where the figure only explains another.
        rounds: As measured.
    """

    name: str
    unit: str
    target: float | None
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)


def show(figures: Sequence[Figure], *, title: str, as_json: bool) -> None:
    """Print a row per figure, or one JSON document."""
    if as_json:
        rows = [{**asdict(figure), "value": figure.value} for figure in figures]
        print(json.dumps({"title": title, "figures": rows}, indent=2))
        return
    table = Table("figure", title=title, title_justify="left")
    for column in ("median", "target", "unit"):
        table.add_column(column, justify="right")
    table.add_column("rounds")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:.4g}",
            "" if figure.target is None else f"<= {figure.target:g}",
            figure.unit,
            " ".join(f"{value:.4g}" for value in figure.rounds),
        )
    # Wide enough that no figure is cut where nobody looks at a terminal.
    Console(width=None if Console().is_terminal else 140).print(table)
