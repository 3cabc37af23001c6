"""How are rows of runs shown in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

__all__ = ["buckets_table", "runs_table"]

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
}


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
