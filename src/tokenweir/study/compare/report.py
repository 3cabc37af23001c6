"""How is a comparison read in a browser?"""

from __future__ import annotations

from typing import Any

from tokenweir.study.report.figures import intervals, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData

__all__ = ["comparison_page"]


def comparison_page(document: dict[str, Any], *, command: str) -> Page:
    """Return the page of a comparison."""
    first, second = document["first"], document["second"]
    lead = [
        f"The same {document['requests']:,} requests of {document['trace']}, {document['profile']} "
        f"at {document['load']:g} x capacity, {document['seeds']} seed(s), paired by "
        f"{document['pairs_are']}.",
        "A difference is clear where its 95 % interval does not hold 0.",
    ]
    if not document["is_complete"]:
        lead.append(f"Interrupted after {document['seeds']} seeds.")
    rows = document["figures"]
    plots = []
    for name, unit, suffix in (
        ("Shares", "difference, share of all", ""),
        ("Times", "difference, s", "_s"),
    ):
        mine = [row for row in rows if row["figure"].endswith("_s") == bool(suffix)]
        figure = plot_of(
            [
                intervals(
                    [row["figure"] for row in mine],
                    [row["difference"] for row in mine],
                    half=[row["ci95"] for row in mine],
                )
            ],
            x=unit,
            y="",
            xaxis={"zeroline": True, "zerolinewidth": 2},
            yaxis={"autorange": "reversed"},
        )
        plots.append(Plot(f"{name}: {first} - {second}", {"difference": figure}))
    headings = ["figure", first, second, "difference", "± 95 %", "pairs", "more than chance"]
    keys = ["figure", "first", "second", "difference", "ci95", "pairs"]
    table = [[*(row[key] for key in keys), "yes" if row["is_clear"] else "no"] for row in rows]
    apart = document["good_under"]
    cards = [
        Card(f"good under {name}", f"{apart[key]:,.0f}", "requests a run", None)
        for name, key in (
            ("both", "both"),
            (f"{first} only", "first_only"),
            (f"{second} only", "second_only"),
            ("neither", "neither"),
        )
    ]
    sections = [
        Section("Differences", plots=plots, table=TableData(headings, table)),
        Section("Requests", cards=cards),
    ]
    return Page(f"{first} - {second}", lead, command, sections)
