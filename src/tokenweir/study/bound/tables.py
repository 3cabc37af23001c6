"""How are bounds and efficiencies shown in a terminal?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

__all__ = ["bounds_table", "efficiency_table", "tenants_table"]

# Tenants of the largest traces are many; the table shows those with most requests.
_TENANTS_SHOWN = 20


def bounds_table(bounds: Sequence[Mapping[str, Any]], *, title: str) -> Table:
    """Return one line per level, from rows of the JSON output."""
    table = Table(title=title, title_justify="left")
    table.add_column("level", no_wrap=True)
    for heading in ("requests\nat most", "tokens\nat most", "requests/s", "bound by", "took s"):
        table.add_column(heading, justify="right")
    for row in bounds:
        table.add_row(
            row["level"],
            f"{row['count']:.4f}",
            f"{row['tokens']:.4f}",
            f"{row['goodput_rps']:,.2f}",
            " / ".join(dict.fromkeys(name or "-" for name in row["binding"].values())),
            f"{row['took_s']:.1f}",
        )
    return table


def efficiency_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line per policy: goodput, bound and efficiency, with its 95 % interval."""
    bound = rows[0]["ours"]["bound"]
    title = f"Efficiency against LP-{bound['level']}, buckets of {bound['bucket_s']:g} s"
    if not all(row["ours"]["bound"]["holds"] for row in rows):
        title += "; * preempted, for which level E is no bound"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for kind in ("count", "tokens"):
        for heading in ("goodput", "bound", "efficiency"):
            table.add_column(f"{heading}\n{kind}", justify="right")
    for row in rows:
        ours = row["ours"]
        cells = [row["policy"] + ("" if ours["bound"]["holds"] else " *")]
        for kind, goodput in (("count", "goodput_unique"), ("tokens", "goodput_tokens")):
            cells += [f"{ours[goodput]:.3f}", f"{ours['bound'][kind]:.3f}"]
            half = row.get("ci95", {}).get(f"efficiency_{kind}")
            cells.append(
                _ratio(ours[f"efficiency_{kind}"]) + ("" if half is None else f" ± {half:.3f}")
            )
        table.add_row(*cells)
    return table


def tenants_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one line per tenant, most requests first: its token efficiency by policy."""
    tenants = rows[0]["ours"]["tenants"]
    names = sorted(tenants, key=lambda name: (-tenants[name]["unique"], name))[:_TENANTS_SHOWN]
    title = f"Token efficiency by tenant, {len(names)} of {len(tenants)} with most requests"
    table = Table(title=title, title_justify="left")
    table.add_column("tenant", no_wrap=True)
    table.add_column("requests", justify="right")
    table.add_column("bound\ntokens", justify="right")
    for row in rows:
        table.add_column(row["policy"], justify="right")
    for name in names:
        table.add_row(
            name,
            f"{tenants[name]['unique']:,.0f}",
            f"{tenants[name]['bound_tokens']:.3f}",
            *(_ratio(row["ours"]["tenants"][name]["efficiency_tokens"]) for row in rows),
        )
    return table


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
