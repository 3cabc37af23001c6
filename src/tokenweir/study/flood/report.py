"""How are floods read in a browser?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenweir.study.report.figures import line, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData

__all__ = ["pair_page", "quiet_page"]

Row = dict[str, Any]


def quiet_page(
    rows: Sequence[Row], found: Sequence[Row], *, lead: Sequence[str], command: str
) -> Page:
    """Return the page of a quiet tenant beside a flood."""
    headings = (
        *("case", "seed", "TTFT p50 s", "TTFT p99 s", "good", "refused"),
        *("flood's goodput", "in tokens", "preemptions"),
    )
    table = []
    for row in rows:
        runs = [("mean", row["mean"]), *((str(n), run) for n, run in enumerate(row["runs"], 1))]
        for seed, run in runs:
            quiet, flood = run["quiet"], run["flooder"] or {}
            table.append([
                *(row["case"], seed, quiet["ttft_p50_s"], quiet["ttft_p99_s"]),
                *(quiet["goodput"], quiet["refused_fraction"]),
                *(flood.get("goodput"), flood.get("goodput_tokens"), run["preemptions"]),
            ])
    late = [
        line(
            row["case"],
            x=range(1, len(row["runs"]) + 1),
            y=[run["quiet"]["ttft_p99_s"] for run in row["runs"]],
            number=number,
        )
        for number, row in enumerate(rows)
    ]
    plot = Plot(
        "The quiet tenant's TTFT p99 by seed",
        {"seeds": plot_of(late, x="seed", y="s")},
        is_wide=True,
    )
    sections = [
        Section("Targets", cards=_cards(found)),
        Section("Runs", plots=[plot], table=TableData(headings, table)),
    ]
    return Page("A quiet tenant beside a flood", lead, command, sections)


def pair_page(
    rows: Sequence[Row], found: Sequence[Row], *, lead: Sequence[str], command: str
) -> Page:
    """Return the page of recorded traces with and without their floods."""
    headings = (
        *("tenant", "requests", "refused without", "refused with", "refused more"),
        *("good without", "good with"),
    )
    keys = (
        *("tenant", "requests", "refused_fraction_without", "refused_fraction", "refused_more"),
        *("goodput_without", "goodput"),
    )
    more = [
        line(
            f"{row['trace']} {row['profile']} {row['asked_load']}",
            x=range(1, len(row["tenants"]) + 1),
            y=[tenant["refused_more"] for tenant in row["tenants"]],
            number=number,
        )
        for number, row in enumerate(rows)
    ]
    plot = Plot(
        "Refused more than without the flood, by tenant, whom it costs most first",
        {"tenants": plot_of(more, x="tenant", y="share of its requests")},
        is_wide=True,
    )
    sections = [
        Section("Targets", cards=_cards(found)),
        Section("Cells", plots=[plot], table=_cells(rows)),
    ]
    for row in rows:
        table = TableData(headings, [[tenant[key] for key in keys] for tenant in row["tenants"]])
        heading = f"{row['trace']} on {row['profile']} at {row['load']:.2f}: the others"
        sections.append(Section(heading, table=table, is_folded=True))
    return Page("What a flood costs the others", lead, command, sections)


def _cells(rows: Sequence[Row]) -> TableData:
    headings = (
        *("trace", "profile", "load", "without flood", "flood's refused", "flood's goodput"),
        *("others' good without", "with", "in tokens without", "with", "tenants over 1 %"),
    )
    table = []
    for row in rows:
        flood, others, alone = row["flooder"], row["others"], row["others_without"]
        table.append([
            *(row["trace"], row["profile"], row["load"], row["load_without"]),
            *(flood["refused_fraction"], flood["goodput"], alone["goodput"], others["goodput"]),
            *(alone["goodput_tokens"], others["goodput_tokens"], row["tenants_harmed"]),
        ])
    return TableData(headings, table)


def _cards(found: Sequence[Row]) -> list[Card]:
    return [
        Card(
            row.get("cell", "mean of the seeds"),
            f"{row['figure']:.3g}",
            row["target"],
            row["holds"],
        )
        for row in found
    ]
