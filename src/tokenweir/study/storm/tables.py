"""How is a storm shown in a terminal, and what is held against it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from tokenweir.study.tables import targets_table

__all__ = ["TARGETS", "storm_table", "verdicts", "verdicts_table"]

_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("attempts per\nunique request", "attempts_per_unique", ".2f"),
    ("dispersion\nfirst", "dispersion_first", ".2f"),
    ("dispersion\nall", "dispersion_all", ".2f"),
    ("goodput from\nfirst arrival", "goodput_user", ".4f"),
    ("goodput of\nany attempt", "goodput_unique", ".4f"),
    ("queue empty\nafter s", "emptied_s", ".2f"),
    ("recovered\nafter s", "recovered_s", ".2f"),
    ("backlog\ntokens", "backlog_tokens", ",.0f"),
    ("allowed s", "recovery_allowed_s", ".2f"),
)

# Name, case, and whether one run holds it: (that run, the run without retries) -> holds.
TARGETS: tuple[tuple[str, str, Callable[[dict[str, Any], dict[str, Any]], bool]], ...] = (
    ("attempts per unique request <= 1.7", "paced", lambda r, n: r["attempts_per_unique"] <= 1.7),
    ("dispersion of first attempts <= 1.5", "paced", lambda r, n: r["dispersion_first"] <= 1.5),
    ("dispersion of all arrivals <= 2", "paced", lambda r, n: r["dispersion_all"] <= 2.0),
    (
        "goodput from first arrival >= without retries - 0.02",
        "paced",
        lambda r, n: r["goodput_user"] >= n["goodput_user"] - 0.02,
    ),
    (
        "queue empty within 2 s of the spike's end",
        "no retries",
        lambda r, n: r["emptied_s"] <= 2.0,
    ),
    (
        "recovered within 1.2 x backlog / (capacity - load) + 0.5 s",
        "no retries",
        lambda r, n: r["recovered_s"] <= r["recovery_allowed_s"],
    ),
)


def verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each target in how many of the runs it holds."""
    runs = {row["case"]: row["runs"] for row in rows}
    without = runs["no retries"]
    return [
        {
            "target": name,
            "case": case,
            "holds": sum(holds(r, n) for r, n in zip(runs[case], without, strict=True)),
            "runs": len(without),
        }
        for name, case, holds in TARGETS
    ]


def storm_table(rows: Sequence[dict[str, Any]], *, title: str) -> Table:
    """Return one line per case."""
    table = Table(title=title, title_justify="left")
    table.add_column("clients", no_wrap=True)
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    for row in rows:
        mean = row["mean"]
        table.add_row(row["case"], *(format(mean[key], spec) for _, key, spec in _COLUMNS))
    return table


def verdicts_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return one line per target."""
    return targets_table(
        [(row["target"], row["case"], f"{row['holds']} of {row['runs']}") for row in found],
        headings=("target", "case", "holds in runs"),
    )
