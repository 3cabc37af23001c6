"""How is a sweep shown in a terminal?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

__all__ = ["cells_table", "tuning_table", "verdicts_table"]


def cells_table(document: dict[str, Any]) -> Table:
    """Return one line per cell: goodput in requests and tokens of every contender."""
    table = Table(
        title="Goodput, requests / tokens, as shares of what was asked", title_justify="left"
    )
    for heading in ("trace", "profile", "load", "binds"):
        table.add_column(heading, no_wrap=True)
    policies = document["policies"]
    for name in policies:
        table.add_column(name, justify="right")
    for heading in (
        "attained",
        "refused",
        "above\nbound",
        "worst\n/ rival",
        "tokens\n/ best rival",
    ):
        table.add_column(heading, justify="right")
    intervals = {
        (row["trace"], row["profile"], row["load"], row["policy"]): row["ci95"]
        for row in document["rows"]
    }
    for cell in document["cells"]:
        key = (cell["trace"], cell["profile"], cell["load"])
        figures = {policies[0]: cell["ours"], **cell["rivals"]}
        ours = cell["ours"]
        table.add_row(
            cell["trace"],
            cell["profile"],
            f"{cell['load']:g}",
            " < ".join(dict.fromkeys((cell["binds_first"], cell["binds"]))),
            *(
                _goodput(figures[name], intervals[*key, name]) if name in figures else "-"
                for name in policies
            ),
            _number(ours["attainment"]),
            _number(ours["refused_fraction"]),
            _number(cell["excess"]),
            _number(_least(cell, kinds=("goodput_requests", "goodput_tokens"))),
            _number(_least(cell, kinds=("goodput_tokens",))),
        )
    return table


def _goodput(figures: dict[str, Any], ci95: dict[str, Any]) -> str:
    text = f"{figures['goodput_requests']:.3f} / {figures['goodput_tokens']:.3f}"
    half = ci95["goodput_tokens"]
    return text if half is None else f"{text} ± {half:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _least(cell: dict[str, Any], *, kinds: Sequence[str]) -> float | None:
    ratios = [ratios[kind] for ratios in cell["ratios"].values() for kind in kinds]
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def tuning_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one line per tuned contender and workload: its best limit, and all scores."""
    table = Table(title="Tuned limits, score by limit", title_justify="left")
    for heading in ("policy", "trace", "profile"):
        table.add_column(heading, no_wrap=True)
    table.add_column("limit", justify="right")
    table.add_column("scores")
    workloads: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        workloads.setdefault((row["policy"], row["trace"], row["profile"]), []).append(row)
    for names, mine in workloads.items():
        best = next(row["limit"] for row in mine if row["is_best"])
        scores = "  ".join(f"{row['limit']}: {row['score']:.3f}" for row in mine)
        table.add_row(*names, str(best), scores)
    return table


def verdicts_table(document: dict[str, Any]) -> Table:
    """Return one line per promise."""
    title = f"{document['policies'][0]} against {', '.join(document['policies'][1:]) or 'nobody'}"
    table = Table(title=title, title_justify="left")
    table.add_column("promise", no_wrap=True)
    table.add_column("figure")
    for heading in ("line", "worst", "broken"):
        table.add_column(heading, justify="right")
    table.add_column("worst where")
    for row in document["verdicts"]:
        table.add_row(
            row["promise"],
            row["what"],
            f"{'>=' if row['is_least'] else '<='} {row['limit']:g}",
            f"{row['worst']:.3f}",
            f"{len(row['broken'])} of {row['cases']}",
            row["worst_where"],
            style=None if row["is_kept"] else "bold red",
        )
    return table
