"""What does ``tokenweir bound`` say about a trace?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.study.bound.bound import KINDS, bounds_of
from tokenweir.study.bound.requests import Requests
from tokenweir.study.bound.windows import width_for
from tokenweir.study.bound.work import least_work

__all__ = ["bound_rows", "notes_on", "width_of"]

# In a shorter run the capacity left after the last arrival is a visible part of the bound.
_SPAN_S_MIN = 120


def width_of(requests: Requests, profile: EngineProfile) -> Nanos:
    """Return the width of buckets that all levels take on a trace, in ns."""
    return width_for(least_work(requests, profile, pauses=True))


def bound_rows(
    requests: Requests,
    profile: EngineProfile,
    *,
    levels: Sequence[str],
    width_ns: Nanos,
    on_figure: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Return one row per level as the JSON output has it, and how long it took.

    Args:
        requests: Unique requests.
        profile: The engine.
        levels: Rows of ``LEVELS``.
        width_ns: Of the buckets, above 0.
        on_figure: Called after each figure; there is one per level and kind.
    """
    span_s = s_from_ns(int(requests.arrival_ns[-1])) or 1.0
    rows = []
    for level in levels:
        started_s = time.perf_counter()
        bound = bounds_of(
            requests, profile, levels=[level], width_ns=width_ns, on_figure=on_figure
        )[level]
        row: dict[str, Any] = {"level": level}
        row |= {kind: round(bound.figures[kind].value, 6) for kind in KINDS}
        row["goodput_rps"] = round(bound.figures["count"].value * requests.count / span_s, 6)
        row["binding"] = {kind: bound.figures[kind].binding for kind in KINDS}
        if len(set(requests.tenants)) > 1:
            parts = {kind: bound.by_tenant(requests, kind=kind) for kind in KINDS}
            row["tenants"] = {
                name: {kind: round(parts[kind][name], 6) for kind in KINDS}
                for name in parts["count"]
            }
        row["took_s"] = round(time.perf_counter() - started_s, 3)
        rows.append(row)
    return rows


def notes_on(requests: Requests, *, width_ns: Nanos, is_width_chosen: bool) -> list[str]:
    """Return what a reader of the figures should know, one sentence each."""
    width_s, span_s = s_from_ns(width_ns), s_from_ns(int(requests.arrival_ns[-1]))
    chosen = ", chosen for the length of the trace" if is_width_chosen and width_s > 1 else ""
    notes = [f"buckets of {width_s:g} s{chosen}; windows are rounded outward to them"]
    if round(span_s) < _SPAN_S_MIN:
        notes.append(
            f"arrivals span {span_s:.0f} s: under {_SPAN_S_MIN} s the capacity left after the last "
            "one is a visible part of the bound"
        )
    return notes
