"""How is hysteresis read in a browser?"""

from __future__ import annotations

from typing import Any

from tokenweir.study.report.figures import line, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData

__all__ = ["hysteresis_page"]


def hysteresis_page(document: dict[str, Any], *, command: str) -> Page:
    """Return the page of a study of hysteresis."""
    lead = [
        f"Lengths of {document['trace']} on {document['profile']}, {document['hold_s']:g} s a "
        f"step; clients wait {document['timeout']} for the first token and retry up to "
        f"{document['retries']} times ({document['retry']}).",
        "Area = mean over loads of |goodput on the way up - on the way down|.",
    ]
    if not document["is_complete"]:
        lead.append("Interrupted: only runs that had ended are shown.")
    rows = document["rows"]
    plots = [_plot(row, number) for number, row in enumerate(rows)]
    cards = [
        Card(
            row["policy"],
            f"{row['area']:.4f}"
            + ("" if row["area_ci95"] is None else f" ± {row['area_ci95']:.4f}"),
            f"area; {row['attempts_per_unique']:.2f} attempts per unique request",
            None,
        )
        for row in rows
    ]
    table = [
        [row["policy"], step["load"], step["up"], step["down"]]
        for row in rows
        for step in row["steps"]
    ]
    headings = ["policy", "load", "goodput up", "goodput down"]
    sections = [
        Section("Area", cards=cards),
        Section("Up and down", plots=plots),
        Section("All steps", table=TableData(headings, table), is_folded=True),
    ]
    return Page("Hysteresis", lead, command, sections)


def _plot(row: dict[str, Any], number: int) -> Plot:
    steps = row["steps"]
    loads = [step["load"] for step in steps]
    traces = [
        line("up", x=loads, y=[step["up"] for step in steps], number=number),
        line("down", x=loads, y=[step["down"] for step in steps], number=number, dash="dot"),
    ]
    traces[1]["marker"] = {**traces[1]["marker"], "symbol": "circle-open"}
    figure = plot_of(
        traces,
        x="load, x capacity",
        y="goodput per unique request",
        yaxis={"range": [0, 1.03]},
    )
    return Plot(row["policy"], {"goodput": figure})
