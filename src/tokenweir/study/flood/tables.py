"""How are floods shown in a terminal, and what is held against them?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from tokenweir.study.tables import figure_cell, targets_table

__all__ = [
    "pair_table",
    "pair_verdicts",
    "quiet_table",
    "quiet_verdicts",
    "tenants_table",
    "verdicts_table",
]

Row = dict[str, Any]

# Name, figure of one seed by (beside the flood, alone, unbounded), most that keeps it.
QUIET_TARGETS: tuple[tuple[str, Callable[[Row, Row, Row], float], float], ...] = (
    ("quiet tenant's TTFT p50 <= 0.10 s", lambda b, a, u: float(b["quiet"]["ttft_p50_s"]), 0.10),
    ("its p99 <= 0.15 s", lambda b, a, u: float(b["quiet"]["ttft_p99_s"]), 0.15),
    (
        "its p99 <= alone + 0.10 s",
        lambda b, a, u: float(b["quiet"]["ttft_p99_s"] - a["quiet"]["ttft_p99_s"]),
        0.10,
    ),
    (
        "its good requests >= alone - 0.02",
        lambda b, a, u: float(a["quiet"]["goodput"] - b["quiet"]["goodput"]),
        0.02,
    ),
    (
        "flood's goodput >= unbounded - 0.01",
        lambda b, a, u: float(u["flooder"]["goodput"] - b["flooder"]["goodput"]),
        0.01,
    ),
    (
        "flood's goodput in tokens >= unbounded - 0.01",
        lambda b, a, u: float(u["flooder"]["goodput_tokens"] - b["flooder"]["goodput_tokens"]),
        0.01,
    ),
)


def quiet_verdicts(rows: Sequence[Row]) -> list[Row]:
    """Return for each target its mean figure, and in how many of the runs it holds."""
    alone, beside, unbounded = (row["runs"] for row in rows)
    found = []
    for name, figure, most in QUIET_TARGETS:
        figures = [figure(b, a, u) for b, a, u in zip(beside, alone, unbounded, strict=True)]
        mean = sum(figures) / len(figures)
        found.append({
            "target": name,
            "figure": round(mean, 6),
            "holds": mean <= most,
            "holds_in": sum(value <= most for value in figures),
            "runs": len(figures),
        })
    return found


def quiet_table(rows: Sequence[Row], *, title: str) -> Table:
    """Return one line per case."""
    table = Table(title=title, title_justify="left")
    table.add_column("quiet tenant", no_wrap=True)
    for heading in (
        *("TTFT s\np50", "p99", "good", "refused"),
        *("flood's\ngoodput", "in tokens", "preemptions"),
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        mean, flood = row["mean"], row["mean"]["flooder"] or {}
        table.add_row(
            row["case"],
            *(figure_cell(mean["quiet"][key], ".3f") for key in ("ttft_p50_s", "ttft_p99_s")),
            *(figure_cell(mean["quiet"][key], ".4f") for key in ("goodput", "refused_fraction")),
            *(figure_cell(flood.get(key), ".4f") for key in ("goodput", "goodput_tokens")),
            figure_cell(mean["preemptions"], ".1f"),
        )
    return table


def pair_verdicts(rows: Sequence[Row]) -> list[Row]:
    """Return what each cell is held to: by the trace, since the floods differ."""
    found = []
    for row in rows:
        place = f"{row['trace']} {row['profile']} {row['asked_load']}"
        if row["trace"] == "servegen-cheap":
            target, figure = (
                "no tenant is refused 1 % more than without the flood",
                row["tenants_harmed"],
            )
            holds = figure == 0
        else:
            target = "the others lose at most 2 % of their good requests"
            figure = row["others_without"]["goodput"] - row["others"]["goodput"]
            holds = figure <= 0.02
        found.append({"cell": place, "target": target, "figure": round(figure, 6), "holds": holds})
    return found


def pair_table(rows: Sequence[Row], *, title: str) -> Table:
    """Return one line per cell."""
    table = Table(title=title, title_justify="left")
    for heading in ("trace", "profile"):
        table.add_column(heading, no_wrap=True)
    for heading in (
        *("load", "without\nflood", "flood's\nrefused", "goodput", "others' good\nwithout"),
        *("with", "in tokens\nwithout", "with", "refused more\nat most", "tenants\nover 1 %"),
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        flood, others, alone = row["flooder"], row["others"], row["others_without"]
        table.add_row(
            row["trace"],
            row["profile"],
            *(f"{row[key]:.2f}" for key in ("load", "load_without")),
            *(f"{flood[key]:.4f}" for key in ("refused_fraction", "goodput")),
            *(f"{side['goodput']:.4f}" for side in (alone, others)),
            *(f"{side['goodput_tokens']:.4f}" for side in (alone, others)),
            f"{row['refused_more_max']:+.4f} {row['refused_more_tenant']}",
            f"{row['tenants_harmed']} of {len(row['tenants'])}",
        )
    return table


def tenants_table(row: Row, *, rows_max: int = 8) -> Table:
    """Return the tenants of one cell that the flood costs most."""
    title = f"{row['trace']} {row['profile']} at {row['load']:.2f}: whom it costs most"
    table = Table(title=title, title_justify="left")
    table.add_column("tenant", no_wrap=True)
    for heading in ("requests", "refused\nwithout", "with", "good\nwithout", "with"):
        table.add_column(heading, justify="right")
    for tenant in row["tenants"][:rows_max]:
        table.add_row(
            tenant["tenant"],
            f"{tenant['requests']:,}",
            *(
                f"{tenant[key]:.4f}"
                for key in (
                    *("refused_fraction_without", "refused_fraction"),
                    *("goodput_without", "goodput"),
                )
            ),
        )
    return table


def verdicts_table(found: Sequence[Row]) -> Table:
    """Return one line per target."""
    lines = []
    for row in found:
        name = f"{row['cell']}: {row['target']}" if "cell" in row else row["target"]
        holds = "yes" if row["holds"] else "no"
        if "runs" in row:
            holds += f", in {row['holds_in']} of {row['runs']} runs"
        lines.append((name, f"{row['figure']:.4f}", holds))
    return targets_table(lines, headings=("target", "figure", "holds"))
