"""How is the arena read in a browser?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenweir.study.report.figures import line, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData

__all__ = ["arena_page"]

_HEADINGS = (
    *("fairness", "TTFT p50 s", "TTFT p99 s", "small p50 s", "small p99 s", "tokens/s"),
    *("Jain mean", "Jain worst", "gap in U"),
)
_KEYS = (
    *("ttft_p50_s", "ttft_p99_s", "small_ttft_p50_s", "small_ttft_p99_s", "tokens_per_s"),
    *("jain_mean", "jain_min", "gap_u"),
)


def arena_page(document: dict[str, Any], found: Sequence[dict[str, Any]], *, command: str) -> Page:
    """Return the page of a run of the arena."""
    rows = document["rows"]
    lead = [
        f"The 27 tenants of {document['trace']} on {document['profile']}, mean of "
        f"{document['seeds']} seed(s), beside what others measured on the same requests.",
        f"The engine: {document['source']}",
    ]
    cards = [
        Card(row["fairness"], f"{row['figure']:.3g}", row["target"], row["holds"]) for row in found
    ]
    table = TableData(_HEADINGS, [[_name(row), *(row[key] for key in _KEYS)] for row in rows])
    plots = [
        Plot(
            "Median time to the first token by tenant, who sent most first (seed 1)",
            {"tenants": plot_of(_by_tenant(rows), x="tenant", y="s", yaxis={"type": "log"})},
            is_wide=True,
        ),
        Plot(
            "Jain's index of backlogged tenants, windows of 60 s (seed 1)",
            {"tenants": plot_of(_by_window(rows), x="s", y="index", yaxis={"range": [0, 1.02]})},
            is_wide=True,
        ),
    ]
    return Page(
        "Fairness in the arena",
        lead,
        command,
        [
            Section("Targets", cards=cards),
            Section("Rows", table=table),
            Section("Tenants", plots=plots),
        ],
    )


def _name(row: dict[str, Any]) -> str:
    return f"{row['fairness']}{', measured' if row['is_measured'] else ''}"


def _by_tenant(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        line(
            _name(row),
            x=range(1, len(row["tenants"]) + 1),
            y=[tenant["ttft_p50_s"] for tenant in row["tenants"]],
            number=number,
            dash="dot" if row["is_measured"] else "solid",
        )
        for number, row in enumerate(rows)
    ]


def _by_window(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        line(
            _name(row),
            x=[window["t_s"] for window in row["windows"]],
            y=[window["jain"] for window in row["windows"]],
            number=number,
            dash="dot" if row["is_measured"] else "solid",
        )
        for number, row in enumerate(rows)
    ]
