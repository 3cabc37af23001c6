"""How is a tuning read in a browser?"""

from __future__ import annotations

from typing import Any

from tokenweir.study.knobs import KNOBS
from tokenweir.study.report.figures import intervals, line, plot_of
from tokenweir.study.report.page import Card, Page, Plot, Section, TableData

__all__ = ["tuning_page"]

_GOALS = {"tokens": "tokens", "requests": "requests", "both": "requests and tokens"}


def tuning_page(document: dict[str, Any], *, command: str) -> Page:
    """Return the page of a tuning."""
    loads = ", ".join(f"{load:g}" for load in document["loads"])
    requests = document["requests"]
    lead = [
        f"{document['policy']} on {document['trace']}, {document['profile']}, at {loads} x "
        "capacity.",
        f"Tuned on {requests['tuned_on']:,} requests for goodput in {_GOALS[document['for']]} at "
        f"an attainment of at least {document['attainment']:g}, judged on the next "
        f"{requests['held_out']:,}.",
    ]
    cards = [
        Card(knob, str(value), f"{KNOBS[knob].what}; default {document['defaults'][knob]}", None)
        for knob, value in (document["found"] or {}).items()
    ]
    advice = document["advice"]
    sections = [Section("Result", advice[0].upper() + advice[1:] + ".", cards=cards)]
    if document["held_out"] is not None:
        sections.append(_held_out(document))
    sections += [_steps(document), _trials(document)]
    return Page(f"Tuning {document['policy']}", lead, command, sections)


def _held_out(document: dict[str, Any]) -> Section:
    names = ("goodput_requests", "goodput_tokens", "attainment", "refused_fraction")
    plots = []
    for one in document["held_out"]:
        rows = [row for row in one["figures"] if row["figure"] in names]
        trace = intervals(
            [row["figure"] for row in rows],
            [row["difference"] for row in rows],
            half=[row["ci95"] for row in rows],
        )
        layout = {"xaxis": {"zeroline": True, "zerolinewidth": 2}}
        figure = plot_of(
            [trace],
            x="found - defaults, share of all",
            y="",
            yaxis={"autorange": "reversed"},
            **layout,
        )
        plots.append(Plot(f"{one['load']:g} x capacity", {"difference": figure}, height_px=260))
    return Section("Held out", "Bars are 95 % intervals; what holds 0 may be chance.", plots=plots)


def _steps(document: dict[str, Any]) -> Section:
    steps: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for trial in document["trials"]:
        if trial["knob"]:
            steps.setdefault((trial["number"], trial["knob"]), []).append(trial)
    now, best = dict(document["defaults"]), 1.0
    plots = []
    for (number, knob), trials in steps.items():
        is_named = isinstance(trials[0]["value"], str)
        # Where it stood before the step is on the curve too.
        stood = {"value": now[knob], "gain": best, "shortfall": 0.0, "is_taken": False}
        points = [*trials, stood]
        if not is_named:
            points.sort(key=lambda point: float(point["value"]))
        taken = next((trial for trial in trials if trial["is_taken"]), None)
        trace = line(
            "gain",
            x=[point["value"] for point in points],
            y=[point["gain"] for point in points],
            number=0,
        )
        trace["mode"] = "markers" if is_named else "lines+markers"
        trace["marker"]["symbol"] = [
            "x" if point["shortfall"] else "star" if point is (taken or stood) else "circle"
            for point in points
        ]
        trace["marker"]["size"] = [13 if point is (taken or stood) else 8 for point in points]
        trace["hovertemplate"] = "%{x}: %{y:.4f}<extra></extra>"
        if taken is not None:
            now[knob], best = taken["value"], taken["gain"]
        figure = plot_of(
            [trace],
            x=KNOBS[knob].what,
            y="goodput / defaults'",
            xaxis={"type": "category"} if is_named else {},
            yaxis={"rangemode": "normal"},
        )
        plots.append(Plot(f"Round {number}: {knob}", {"gain": figure}, height_px=260))
    return Section("Steps", "Star: taken. Cross: attainment under what is asked for.", plots=plots)


def _trials(document: dict[str, Any]) -> Section:
    keys = ("number", "knob", "value", "gain", "shortfall")
    rows = [
        [*(trial[key] for key in keys), "yes" if trial["is_taken"] else ""]
        for trial in document["trials"]
    ]
    headings = ["round", "knob", "value", "gain", "shortfall", "taken"]
    return Section("All trials", table=TableData(headings, rows), is_folded=True)
