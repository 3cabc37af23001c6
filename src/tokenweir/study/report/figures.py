"""How do the plots of reports look? Colours that colour-blind eyes tell apart, never alone.

Source of the colours: Okabe and Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["heat", "intervals", "line", "plot_of"]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")

Trace = dict[str, Any]


def plot_of(traces: Sequence[Trace], *, x: str, y: str, **layout: Any) -> dict[str, Any]:
    """Return a figure with named axes; further layout as plotly has it."""
    axes: dict[str, Any] = {
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
    for name, more in layout.items():
        axes[name] = {**axes[name], **more} if name in axes else more
    return {"data": list(traces), "layout": axes}


def line(
    name: str,
    *,
    x: Sequence[float],
    y: Sequence[float | None],
    number: int,
    half: Sequence[float | None] = (),
    dash: str = "solid",
    shown: str = "%{y:.4g}",
) -> Trace:
    """Return a line with markers, and bars of half the interval where there is one.

    Args:
        name: In the legend.
        x: Of each point.
        y: Of each point, None where there is none.
        number: Of the line in its plot: its colour and its marker.
        half: Half of the interval of each point.
        dash: Style of the line.
        shown: y as the pointer shows it.
    """
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": _COLOURS[number % len(_COLOURS)], "width": 2, "dash": dash},
        "marker": {"symbol": _MARKERS[number % len(_MARKERS)], "size": 7},
        "hovertemplate": f"%{{x:g}}: {shown}<extra>{name}</extra>",
    }
    if any(value is not None for value in half):
        trace["error_y"] = {"type": "data", "array": [value or 0.0 for value in half], "width": 4}
    return trace


def heat(
    z: Sequence[Sequence[float | None]], *, x: Sequence[str], y: Sequence[str], middle: float
) -> Trace:
    """Return a map of ratios, blue above the middle and orange below, with its numbers."""
    text = [["" if value is None else f"{value:.3f}" for value in row] for row in z]
    return {
        "type": "heatmap",
        "x": list(x),
        "y": list(y),
        "z": [list(row) for row in z],
        "text": text,
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}, load %{x}: %{text}<extra></extra>",
        "zmid": middle,
        "zmin": middle - 0.3,
        "zmax": middle + 0.3,
        "colorscale": [[0, "#d55e00"], [0.5, "#f7f7f7"], [1, "#0072b2"]],
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": "ratio"}, "thickness": 12},
    }


def intervals(
    names: Sequence[str], values: Sequence[float | None], *, half: Sequence[float | None]
) -> Trace:
    """Return a point with its interval per name, one below the other."""
    return {
        "type": "scatter",
        "mode": "markers",
        "y": list(names),
        "x": list(values),
        "marker": {"color": _COLOURS[0], "size": 9},
        "error_x": {"type": "data", "array": [value or 0.0 for value in half], "width": 5},
        "hovertemplate": "%{y}: %{x:.4f}<extra></extra>",
        "showlegend": False,
    }
