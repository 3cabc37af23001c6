"""How are rows of runs shown in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

__all__ = [
    "buckets_table",
    "figure_cell",
    "parts_table",
    "runs_table",
    "targets_table",
    "tenants_table",
]

# A terminal has so many lines, and who sends most comes first.
_TENANTS_SHOWN = 10

# Each figure with its heading and its decimals.
_COLUMNS: dict[str, tuple[str, int]] = {
    "arrivals": ("attempts", 0),
    "retries": ("retries", 0),
    "refused": ("refused", 0),
    "completed": ("completed", 0),
    "goodput_per_attempt": ("goodput\nper attempt", 3),
    "goodput_unique": ("goodput\nunique", 3),
    "goodput_tokens": ("goodput\ntokens", 3),
    "ttft_p50_s": ("TTFT p50 s\ncompleted", 2),
    "ttft_p99_s": ("TTFT p99 s\ncompleted", 2),
    "ttft_p50_all_s": ("TTFT p50 s\nall", 2),
    "ttft_p99_all_s": ("TTFT p99 s\nall", 2),
    "tokens_per_s": ("tokens/s", 0),
    "preemptions": ("preempted", 0),
    "recomputed_fraction": ("recomputed\nof all work", 3),
}

# What a run with several engines, or with a prefix cache, has beside that.
_PARTS = {
    "prefix_cache": (
        "Prefix cache: prompt tokens that need not be read, and how right the index of them was",
        {
            "cached_prompt_tokens": ("cached prompt\ntokens", 0),
            "hit_fraction": ("of all prompt\ntokens", 3),
            "index_precision": ("index\nprecision", 3),
            "index_recall": ("index\nrecall", 3),
            "discount_factor": ("discount\nfactor", 3),
        },
    ),
    "replicas": (
        "By replica",
        {
            "sent": ("sent", 0),
            "completed": ("completed", 0),
            "tokens_per_s": ("tokens/s", 0),
            "preemptions": ("preempted", 0),
            "cached_prompt_tokens": ("cached prompt\ntokens", 0),
        },
    ),
}


def figure_cell(value: float | None, spec: str) -> str:
    """Return a figure as text, nothing where there is none."""
    return "" if value is None else format(value, spec)


def targets_table(rows: Sequence[Sequence[str]], *, headings: Sequence[str]) -> Table:
    """Return one line per target, as wide as its words."""
    table = Table(title="Targets", title_justify="left")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def runs_table(rows: Sequence[dict[str, Any]], *, title: str) -> Table:
    """Return one line per row; a percentile over all that is infinite is shown as inf."""
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for heading, _ in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for row in rows:
        ours = row["ours"]
        cells = [
            "inf" if ours[name] is None else f"{ours[name]:,.{decimals}f}"
            for name, (_, decimals) in _COLUMNS.items()
        ]
        table.add_row(row["policy"], *cells)
    return table


def buckets_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return goodput per unique request by prompt size, one line per row."""
    buckets = rows[0]["ours"]["buckets"]
    table = Table(title="Goodput per unique request, by prompt tokens", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for label, bucket in buckets.items():
        table.add_column(f"{label}\n({bucket['unique']:,.0f})", justify="right")
    for row in rows:
        mine = row["ours"]["buckets"]
        cells = [
            f"{mine[label]['goodput_unique']:.3f}" if label in mine else "-" for label in buckets
        ]
        table.add_row(row["policy"], *cells)
    return table


def tenants_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one line per tenant, most requests first: its goodput by policy."""
    tenants = rows[0]["ours"]["tenants"]
    names = sorted(tenants, key=lambda name: (-tenants[name]["unique"], name))[:_TENANTS_SHOWN]
    title = f"Goodput by tenant, {len(names)} of {len(tenants)} with most requests"
    table = Table(title=title, title_justify="left")
    table.add_column("tenant", no_wrap=True)
    table.add_column("requests", justify="right")
    figures = (("goodput_unique", "unique"), ("goodput_tokens", "tokens"))
    for row in rows:
        for _, what in figures:
            table.add_column(f"{row['policy']}\n{what}", justify="right")
    for name in names:
        mine = [row["ours"]["tenants"][name][key] for row in rows for key, _ in figures]
        table.add_row(name, f"{tenants[name]['unique']:,.0f}", *(f"{x:.3f}" for x in mine))
    return table


def parts_table(rows: Sequence[dict[str, Any]], *, name: str) -> Table:
    """Return what a run has beside its figures, a line per row, or per replica of each.

    Args:
        rows: As ``runs_table`` takes them.
        name: ``prefix_cache`` or ``replicas``.
    """
    title, columns = _PARTS[name]
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    if name == "replicas":
        table.add_column("replica", no_wrap=True)
    for heading, _ in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        part = row["ours"][name]
        for lead, figures in part.items() if name == "replicas" else [(None, part)]:
            cells = [f"{figures[key]:,.{decimals}f}" for key, (_, decimals) in columns.items()]
            table.add_row(row["policy"], *([] if lead is None else [lead]), *cells)
    return table
