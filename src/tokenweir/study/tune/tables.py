"""How is a tuning shown in a terminal?"""

from __future__ import annotations

from typing import Any

from rich.table import Table

__all__ = ["held_out_table", "trials_table", "weights_line"]

_TENANTS_SHOWN_MAX = 8


def trials_table(document: dict[str, Any]) -> Table:
    """Return one line per step: a knob, the gain by value, and what was taken."""
    table = Table(
        title=f"Goodput relative to the defaults, tuned on {document['requests']['tuned_on']:,} "
        "requests",
        caption="* attainment under what is asked for",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("round", justify="right")
    table.add_column("knob", no_wrap=True)
    table.add_column("default", justify="right")
    table.add_column("gain by value")
    table.add_column("taken", justify="right")
    steps: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for trial in document["trials"]:
        if trial["knob"]:
            steps.setdefault((trial["number"], trial["knob"]), []).append(trial)
    for (number, knob), trials in steps.items():
        taken = next((str(t["value"]) for t in trials if t["is_taken"]), "-")
        gains = "  ".join(
            f"{t['value']}: {t['gain']:.3f}{'*' if t['shortfall'] else ''}" for t in trials
        )
        table.add_row(str(number), knob, str(document["defaults"][knob]), gains, taken)
    return table


def held_out_table(document: dict[str, Any]) -> Table:
    """Return one line per load and figure on the part that nothing was chosen by."""
    found = ", ".join(f"{knob} {value}" for knob, value in document["found"].items()) or "nothing"
    table = Table(
        title=f"Found: {found}; on {document['requests']['held_out']:,} held-out requests",
        title_justify="left",
    )
    table.add_column("load", justify="right")
    table.add_column("figure", no_wrap=True)
    for heading in ("found", "defaults", "difference", "± 95 %"):
        table.add_column(heading, justify="right")
    table.add_column("more than chance")
    for one in document["held_out"]:
        for row in one["figures"]:
            numbers = [row[name] for name in ("first", "second", "difference", "ci95")]
            cells = ["-" if number is None else f"{number:.4f}" for number in numbers]
            clear = "yes" if row["is_clear"] else "no"
            table.add_row(f"{one['load']:g}", row["figure"], *cells, clear)
    return table


def weights_line(document: dict[str, Any]) -> str:
    """Return the weights that the found power stands for, or nothing where they are equal."""
    weights = list(document["weights"].items())
    if not weights:
        return ""
    shown = ", ".join(f"{tenant} {weight:g}" for tenant, weight in weights[:_TENANTS_SHOWN_MAX])
    more = "" if len(weights) <= _TENANTS_SHOWN_MAX else ", and more with --json"
    return f"weights by tenant: {shown}{more}"
