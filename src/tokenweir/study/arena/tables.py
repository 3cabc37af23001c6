"""How is the arena shown in a terminal, and what is held against it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from tokenweir.study.tables import figure_cell, targets_table

__all__ = ["TARGETS", "Target", "arena_table", "verdicts", "verdicts_table"]

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("TTFT s\np50", "ttft_p50_s", ".2f"),
    ("p99", "ttft_p99_s", ".1f"),
    ("small tenants\np50", "small_ttft_p50_s", ".2f"),
    ("p99", "small_ttft_p99_s", ".1f"),
    ("tokens/s", "tokens_per_s", ".1f"),
    ("Jain\nmean", "jain_mean", ".3f"),
    ("worst\nwindow", "jain_min", ".3f"),
    ("gap\nin U", "gap_u", ".2f"),
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a row of ours is held to.

    Attributes:
        name: In words.
        figure: Of one of ours and the rows beside it: ours by name, measured ones by
            "measured NAME".
        least: It is kept from this figure on.
        most: And up to this one.
    """

    name: str
    figure: Callable[[Row, dict[str, Row]], float]
    least: float = 0.0
    most: float = math.inf


def _small(published: str) -> Callable[[Row, dict[str, Row]], float]:
    """Return the figure: small tenants' median over that of a measured row."""
    key = "small_ttft_p50_s"
    return lambda ours, beside: float(ours[key] / beside[f"measured {published}"][key])


TARGETS: tuple[Target, ...] = (
    Target("small tenants' TTFT p50 <= 1.3 x the measured vtc row's", _small("vtc"), most=1.3),
    Target(
        "the same <= 1.3 x vtc_predict's, which charges as ours does",
        _small("vtc_predict"),
        most=1.3,
    ),
    Target(
        "small tenants' TTFT p50 at least 20 x better than first come",
        lambda ours, beside: float(beside["fcfs"]["small_ttft_p50_s"] / ours["small_ttft_p50_s"]),
        least=20.0,
    ),
    Target(
        "tokens/s within 2 % of those of first come",
        lambda ours, beside: float(ours["tokens_per_s"] / beside["fcfs"]["tokens_per_s"]),
        least=0.98,
    ),
    # No window with two backlogged tenants is no proof.
    Target(
        "Jain's index >= 0.97 in the worst window",
        lambda ours, beside: float(ours["jain_min"] or 0.0),
        least=0.97,
    ),
    Target(
        "service gap of backlogged pairs <= 2 U",
        lambda ours, beside: float(ours["gap_u"]),
        most=2.0,
    ),
)


def verdicts(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each of our rows but first come what it holds."""
    ours = {row["fairness"]: row for row in document["rows"] if not row["is_measured"]}
    measured = {
        f"measured {row['fairness']}": row for row in document["rows"] if row["is_measured"]
    }
    beside = {**ours, **measured}
    found = []
    for target in TARGETS:
        for name, row in ours.items():
            if name == "fcfs":
                continue
            figure = target.figure(row, beside)
            found.append({
                "target": target.name,
                "fairness": name,
                "figure": round(figure, 6),
                "holds": target.least <= figure <= target.most,
            })
    return found


def arena_table(document: dict[str, Any]) -> Table:
    """Return one line per row, ours first."""
    title = f"{document['trace']} on {document['profile']}, mean of {document['seeds']} seed(s)"
    table = Table(title=title, title_justify="left")
    table.add_column("fairness", no_wrap=True)
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for row in document["rows"]:
        name = f"{row['fairness']}{', measured' if row['is_measured'] else ''}"
        table.add_row(name, *(figure_cell(row[key], spec) for _, key, spec in _COLUMNS))
    return table


def verdicts_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return one line per target and row."""
    return targets_table(
        [
            (
                row["target"],
                row["fairness"],
                f"{row['figure']:.3f}",
                "yes" if row["holds"] else "no",
            )
            for row in found
        ],
        headings=("target", "fairness", "figure", "holds"),
    )
