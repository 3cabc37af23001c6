"""How is a sweep read in a browser?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenweir.study.report.figures import heat, line, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData
from tokenweir.study.sweep.verdicts import Document

__all__ = ["sweep_page"]

# View, figure, axis with unit.
_VIEWS: dict[str, tuple[str, str]] = {
    "goodput in tokens/s": ("goodput_tokens_per_s", "goodput, tokens/s"),
    "goodput in requests/s": ("goodput_rps", "goodput, requests/s"),
    "SLO attainment of admitted": ("attainment", "good / admitted"),
    "refused": ("refused_fraction", "share of requests refused"),
    "TTFT p99": ("ttft_p99_s", "TTFT p99, s"),
}
_COLUMNS = ("goodput_requests", "goodput_tokens", "attainment", "refused_fraction", "ttft_p99_s")


def sweep_page(document: Document, *, command: str) -> Page:
    """Return the page of a sweep."""
    ours, *rivals = document["policies"]
    slo = document["slo"]
    grace = f" or {slo['unloaded_ratio']:g} x the idle engine's" if slo["unloaded_ratio"] else ""
    requests = "all" if document["requests"] is None else f"{document['requests']:,}"
    lead = [
        f"From plan {document['plan']}: {document['what']}.",
        f"{requests} requests a run, after {document['warmup']:,} of warm-up and before "
        f"{document['cooldown']:,} of cool-down; {document['seeds']} seed(s).",
        f"Good: first token within {slo['ttft_ns'] / 1e9:g} s{grace}, then "
        f"{slo['tpot_ns'] / 1e6:g} ms a token. Load is in multiples of the engine's capacity.",
    ]
    if not document["is_complete"]:
        lead.append("Interrupted: only cells that had ended are shown.")
    sections = [
        Section("Promises", cards=[_card(row) for row in document["verdicts"]]),
        _ratios_section(document),
        Section(
            "By workload",
            "Behind each name stands what binds first. Bars are 95 % intervals over seeds.",
            plots=[_workload_plot(document, w) for w in document["workloads"]],
        ),
    ]
    if document["tuning"]:
        sections.append(_tuning_section(document))
    sections += [_workloads_section(document), _rows_section(document)]
    title = f"{ours} against {', '.join(rivals)}" if rivals else ours
    return Page(f"Sweep: {title}", lead, command, sections)


def _card(row: Document) -> Card:
    sign = "≥" if row["is_least"] else "≤"
    return Card(
        row["promise"],
        f"{row['worst']:.3f}",
        f"{row['what']}, {sign} {row['limit']:g}; worst of {row['cases']}: {row['worst_where']}",
        row["is_kept"],
        [f"{case['where']}: {case['figure']:.4f}" for case in row["broken"]],
    )


def _of(cells: Sequence[Document], workload: Document) -> list[Document]:
    names = (workload["trace"], workload["profile"])
    return [cell for cell in cells if (cell["trace"], cell["profile"]) == names]


def _ratios_section(document: Document) -> Section:
    loads = sorted({cell["load"] for cell in document["cells"]})
    workloads = document["workloads"]
    views = {}
    for view, kind in (("tokens", "goodput_tokens"), ("requests", "goodput_requests")):
        rows = []
        for workload in workloads:
            by_load = {
                cell["load"]: _worst(cell, kind) for cell in _of(document["cells"], workload)
            }
            rows.append([by_load.get(load) for load in loads])
        names = [f"{w['trace']}, {w['profile']}" for w in workloads]
        figure = plot_of(
            [heat(rows, x=[f"{load:g}" for load in loads], y=names, middle=1.0)],
            x="load, x capacity",
            y="",
            xaxis={"type": "category"},
            yaxis={"autorange": "reversed"},
        )
        views[view] = figure
    height_px = 140 + 32 * len(workloads)
    name = f"{document['policies'][0]} / best rival"
    return Section(
        "Against the best rival of each cell",
        "Above 1 (blue) the first policy is ahead, below 1 (orange) a rival is.",
        plots=[Plot(name, views, height_px=height_px, is_wide=True)],
    )


def _worst(cell: Document, kind: str) -> float | None:
    ratios = [ratios[kind] for ratios in cell["ratios"].values()]
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def _workload_plot(document: Document, workload: Document) -> Plot:
    rows = _of(document["rows"], workload)
    views = {}
    for view, (figure, axis) in _VIEWS.items():
        traces = []
        for number, name in enumerate(document["policies"]):
            mine = [row for row in rows if row["policy"] == name]
            traces.append(
                line(
                    name,
                    x=[row["load"] for row in mine],
                    y=[row["figures"][figure] for row in mine],
                    number=number,
                    half=[row["ci95"][figure] for row in mine],
                )
            )
        views[view] = plot_of(traces, x="load, x capacity", y=axis)
    binds = ", then ".join(dict.fromkeys((workload["binds_first"], workload["binds"])))
    return Plot(f"{workload['trace']} on {workload['profile']}: {binds}", views)


def _tuning_section(document: Document) -> Section:
    by_workload: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for row in document["tuning"]:
        policies = by_workload.setdefault((row["trace"], row["profile"]), {})
        policies.setdefault(row["policy"], []).append(row)
    plots = []
    for (trace, profile), policies in by_workload.items():
        traces = [
            line(
                f"{policy}, best {next(row['limit'] for row in rows if row['is_best'])}",
                x=[row["limit"] for row in rows],
                y=[row["score"] for row in rows],
                number=number,
            )
            for number, (policy, rows) in enumerate(policies.items(), start=1)
        ]
        figure = plot_of(traces, x="limit, requests", y="score", xaxis={"type": "log"})
        plots.append(Plot(f"{trace} on {profile}", {"score": figure}, height_px=260))
    return Section(
        "Tuned limits",
        "Score: mean over loads of goodput, each relative to the best limit at that load.",
        plots=plots,
        is_folded=True,
    )


def _workloads_section(document: Document) -> Section:
    headings = [
        *("trace", "profile", "capacity, requests/s", "binds", "first of all"),
        *("seats by KV", "by pace", "by the engine", "by a step's budget"),
    ]
    keys = [
        *("trace", "profile", "capacity_rps", "binds", "binds_first"),
        *("seats_kv", "seats_pace", "seats_seats", "seats_budget"),
    ]
    rows = [[workload[key] for key in keys] for workload in document["workloads"]]
    return Section("Workloads", table=TableData(headings, rows), is_folded=True)


def _rows_section(document: Document) -> Section:
    headings = ["trace", "profile", "load", "policy", "limit", *(c for c in _COLUMNS)]
    rows = [
        [
            *(row["trace"], row["profile"], row["load"], row["policy"]),
            row["setting"].get("limit"),
            *(row["figures"][name] for name in _COLUMNS),
        ]
        for row in document["rows"]
    ]
    return Section("All cells", "A heading sorts.", table=TableData(headings, rows), is_folded=True)
