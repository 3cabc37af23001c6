"""How are the article's rows and flaws shown in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from tokenweir.study.article.flaws import FlawRow

__all__ = ["flaws_table", "rows_tables"]

# Each figure with its heading and its decimals.
_COLUMNS: dict[str, tuple[str, int]] = {
    "arrivals": ("arrivals", 0),
    "retries": ("retries", 0),
    "refused": ("refused", 0),
    "completed": ("completed", 0),
    "goodput_per_attempt": ("goodput", 3),
    "ttft_p50_s": ("TTFT p50 s", 2),
    "ttft_p99_s": ("TTFT p99 s", 2),
    "tokens_per_s": ("tokens/s", 0),
    "preemptions": ("preemptions", 0),
}
_TITLES = {
    "steady": "Steady load, requests per second",
    "spike": "Spike, 30/s for 15 s, 140/s for 20 s, 30/s for 25 s",
    "retry": "Retry storm: the spike, refused clients retry with 0.8 after 0.2, 0.4, 0.8 s",
}


def rows_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """Return one table per group: published, ours and the deviation, figure by figure."""
    tables = [
        _group_table(title, [row for row in rows if row["group"] == group])
        for group, title in _TITLES.items()
    ]
    return [*tables, _spike_states_table(rows)]


def flaws_table(flaws: Sequence[FlawRow]) -> Table:
    """Return the table "flaw, the article's way, corrected"."""
    table = Table(title="What each flaw of the article changes", title_justify="left")
    for heading in ("flaw", "the article's way", "corrected"):
        table.add_column(heading, overflow="fold")
    for row in flaws:
        table.add_row(row.flaw, row.articles_way, row.corrected)
    return table


def _group_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    seeds = rows[0]["seeds"]
    table = Table(
        title=f"{title} (ours: mean of {seeds} seed{'s' if seeds > 1 else ''})",
        title_justify="left",
    )
    for heading in ("load", "policy", "queue", ""):
        table.add_column(heading, no_wrap=True)
    shown = [name for name in _COLUMNS if name != "retries" or rows[0]["group"] == "retry"]
    for name in shown:
        table.add_column(_COLUMNS[name][0], justify="right")
    for row in rows:
        label = (row["load"], row["policy"], row["queue"])
        for kind in ("published", "ours", "deviation"):
            table.add_row(
                *(label if kind == "published" else ("", "", "")),
                kind,
                *(_cell(row[kind], name, is_signed=kind == "deviation") for name in shown),
                end_section=kind == "deviation",
                style="dim" if kind == "published" else None,
            )
    return table


def _cell(figures: dict[str, Any], name: str, *, is_signed: bool) -> str:
    value = figures.get(name)
    if value is None:
        return "-"
    decimals = _COLUMNS[name][1]
    return f"{value:+,.{decimals}f}" if is_signed else f"{value:,.{decimals}f}"


def _spike_states_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Spike: running / queued / KV %, published and ours", title_justify="left")
    spikes = [row for row in rows if "published_series" in row]
    table.add_column("t s", justify="right")
    for row in spikes:
        table.add_column(f"{row['policy']} published", justify="right")
        table.add_column(f"{row['policy']} ({row['queue']}) ours", justify="right")
    for index, state in enumerate(spikes[0]["published_series"]):
        cells = [str(state["t_s"])]
        for row in spikes:
            cells.append(_state(row["published_series"][index]))
            cells.append(_state(row["series"][state["t_s"] - 1]))
        table.add_row(*cells)
    return table


def _state(state: dict[str, Any]) -> str:
    return f"{state['running']:.0f} / {state['waiting']:.0f} / {state['kv_fraction'] * 100:.0f}"
