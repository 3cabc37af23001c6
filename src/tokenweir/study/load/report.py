"""How is a load shown to a person?"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from tokenweir.study.cpu import CPU_FRACTION_MAX

__all__ = ["figure", "load_notes", "load_table"]

# (name in the JSON output, what it is called, kind of figure)
_LINES: tuple[tuple[str, str, str], ...] = (
    ("unique", "unique requests", "count"),
    ("arrivals", "attempts", "count"),
    ("retries", "  of them retries", "count"),
    ("completed", "completed", "count"),
    ("refused", "refused", "count"),
    ("abandoned", "given up by the client", "count"),
    ("errors", "errors", "count"),
    ("unserved", "open when the run was cut", "count"),
    ("goodput_unique", "goodput, unique requests", "share"),
    ("goodput_first_arrival", "  TTFT from the first arrival", "share"),
    ("goodput_per_attempt", "goodput, attempts", "share"),
    ("goodput_tokens", "goodput, tokens", "share"),
    ("ttft_p50_s", "TTFT p50, completed", "seconds"),
    ("ttft_p99_s", "TTFT p99, completed", "seconds"),
    ("ttft_p50_all_s", "TTFT p50, all unique", "seconds"),
    ("ttft_p99_all_s", "TTFT p99, all unique", "seconds"),
    ("tpot_p50_s", "TPOT p50", "seconds"),
    ("tpot_p99_s", "TPOT p99", "seconds"),
    ("tokens_per_s", "tokens/s", "rate"),
    ("preemptions", "preemptions", "count"),
    ("client_cpu_fraction", "CPU of this process, of one core", "share"),
    ("client_lag_s_max", "latest sending after the due time", "seconds"),
)


def figure(value: Any, kind: str) -> str:
    """Write one figure; None is what the engine does not tell, or an infinite time."""
    if value is None:
        return "∞" if kind == "seconds" else "-"
    if kind == "share":
        return f"{value:.3f}"
    if kind == "seconds":
        return f"{value:.3f} s"
    return f"{value:,.0f}"


def load_table(summary: dict[str, Any], *, title: str) -> Table:
    """Return the table of one run."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, label, kind in _LINES:
        table.add_row(label, figure(summary[name], kind))
        if name in ("refused", "errors"):
            for reason, count in summary[f"{name}_by_reason"].items():
                table.add_row(f"  {reason}", figure(count, "count"))
    return table


def load_notes(summary: dict[str, Any]) -> list[str]:
    """Return what a reader has to know before believing the figures, nothing where all is well."""
    cpu = summary["client_cpu_fraction"]
    notes = []
    if cpu > CPU_FRACTION_MAX:
        notes.append(f"VOID: over {CPU_FRACTION_MAX:.0%} of a core, the client measured itself")
    if summary["client_in_flight_capped"]:
        notes.append(
            f"{summary['client_in_flight_capped']} requests failed at the client's own cap on "
            "requests in flight: the load was not open-loop there"
        )
    if not summary["is_complete"]:
        notes.append("interrupted: the figures cover what was sent until then")
    return notes
