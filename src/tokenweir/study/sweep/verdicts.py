"""Does the first contender of a sweep keep its promises against the others?

Promises, each with the line it has to keep:

* ``collapse``: goodput per second at the highest load, over the best of all loads: >= 0.95;
* ``attainment``: SLO attainment of what entered the engine, in every cell: >= 0.98;
* ``refusals``: below capacity, refused - what the bound must refuse: <= 0.01;
* ``never worse``: goodput over each rival's, in every cell: >= 0.99;
* ``gain``: share of cells where the pool or the pace binds that have >= 3 % more token goodput than
  every rival: >= 0.5; and the same of the cells above capacity, where there is more to gain.

Each is asked of requests and of tokens where that makes a difference, and the worse one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["VERDICTS", "Document", "judged_cells", "verdicts_on"]

Document = dict[str, Any]

_KINDS = ("goodput_requests", "goodput_tokens")
_RATES = ("goodput_rps", "goodput_tokens_per_s")
# Resources whose shortage a count of requests does not see.
_BLIND = ("kv", "pace")
GAIN_RATIO_MIN = 1.03


@dataclass(frozen=True, slots=True)
class Promise:
    """One line to keep.

    Attributes:
        what: In words.
        limit: Of the figure.
        is_least: Whether the figure may not be below it, as against above.
        figures: From cells as ``judged_cells`` has them: (where, figure) of each case.
    """

    what: str
    limit: float
    is_least: bool
    figures: Callable[[Sequence[Document]], Iterable[tuple[str, float]]]

    def is_kept(self, figure: float) -> bool:
        """Tell whether a figure keeps it."""
        return figure >= self.limit if self.is_least else figure <= self.limit


def judged_cells(document: Document) -> list[Document]:
    """Return a cell per workload and load: the first contender beside its rivals.

    Returns:
        ``binds`` and ``binds_first`` (see ``binding_of``);
        ``ours`` and ``rivals`` (figures, by name); ``ratios``: ours over each rival by
        kind of goodput, None where the rival has none; ``excess``: refusals above what the bound
        must refuse, None without bound.
    """
    name = document["policies"][0]
    binds = {
        (w["trace"], w["profile"]): {k: w[k] for k in ("binds", "binds_first")}
        for w in document["workloads"]
    }
    bounds = {(b["trace"], b["profile"], b["load"]): b["count"] for b in document["bounds"]}
    cells: dict[tuple[str, str, float], dict[str, Any]] = {}
    for row in document["rows"]:
        key = (row["trace"], row["profile"], row["load"])
        cells.setdefault(key, {})[row["policy"]] = row["figures"]
    judged = []
    for key, by_policy in cells.items():
        ours = by_policy.pop(name, None)
        if ours is None:
            continue
        bound = bounds.get(key)
        judged.append({
            "trace": key[0],
            "profile": key[1],
            "load": key[2],
            **binds[key[:2]],
            "ours": ours,
            "rivals": by_policy,
            "ratios": {
                rival: {kind: _ratio(ours[kind], figures[kind]) for kind in _KINDS}
                for rival, figures in by_policy.items()
            },
            "excess": None if bound is None else round(ours["refused_fraction"] - (1 - bound), 6),
        })
    return judged


def _ratio(ours: float, rival: float) -> float | None:
    return round(ours / rival, 6) if rival > 0 else None


def _where(cell: Document) -> str:
    return f"{cell['trace']} on {cell['profile']} at {cell['load']:g}"


def _collapse(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    workloads: dict[tuple[str, str], list[Document]] = {}
    for cell in cells:
        workloads.setdefault((cell["trace"], cell["profile"]), []).append(cell)
    for (trace, profile), mine in workloads.items():
        last = max(mine, key=lambda cell: float(cell["load"]))
        if last["load"] > 1 and len(mine) > 1:
            for rate in _RATES:
                best = max(cell["ours"][rate] for cell in mine)
                yield f"{trace} on {profile}, {rate}", _ratio(last["ours"][rate], best) or 0.0


def _attainment(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    for cell in cells:
        if cell["ours"]["attainment"] is not None:
            yield _where(cell), cell["ours"]["attainment"]


def _refusals(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    for cell in cells:
        if cell["excess"] is not None:
            yield _where(cell), cell["excess"]


def _against_rivals(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    for cell in cells:
        for rival, ratios in cell["ratios"].items():
            for kind, ratio in ratios.items():
                if ratio is not None:
                    yield f"{_where(cell)}, {kind} of {rival}", ratio


def _gain(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    blind = [cell for cell in cells if cell["binds"] in _BLIND and cell["ratios"]]
    if blind:
        yield f"of {len(blind)} cells", sum(map(_is_ahead, blind)) / len(blind)


def _gain_overloaded(cells: Sequence[Document]) -> Iterable[tuple[str, float]]:
    return _gain([cell for cell in cells if cell["load"] > 1])


def _is_ahead(cell: Document) -> bool:
    ratios = [ratios["goodput_tokens"] for ratios in cell["ratios"].values()]
    return all(ratio is None or ratio >= GAIN_RATIO_MIN for ratio in ratios)


VERDICTS: dict[str, Promise] = {
    "collapse": Promise(
        "goodput/s at the highest load / best", 0.95, is_least=True, figures=_collapse
    ),
    "attainment": Promise("SLO attainment of admitted", 0.98, is_least=True, figures=_attainment),
    "refusals": Promise("refused - bound must refuse", 0.01, is_least=False, figures=_refusals),
    "never worse": Promise("goodput / rival's", 0.99, is_least=True, figures=_against_rivals),
    "gain": Promise(
        "share of kv and pace cells 3 % ahead of all", 0.5, is_least=True, figures=_gain
    ),
    "gain overloaded": Promise(
        "the same above capacity", 0.5, is_least=True, figures=_gain_overloaded
    ),
}


def verdicts_on(cells: Sequence[Document]) -> list[Document]:
    """Return a row per promise: its worst case, and all cases that break it, worst first."""
    rows = []
    for name, promise in VERDICTS.items():
        cases = list(promise.figures(cells))
        if not cases:
            continue
        cases.sort(key=lambda case: case[1], reverse=not promise.is_least)
        broken = [case for case in cases if not promise.is_kept(case[1])]
        rows.append({
            "promise": name,
            "what": promise.what,
            "limit": promise.limit,
            "is_least": promise.is_least,
            "cases": len(cases),
            "is_kept": not broken,
            "worst": round(cases[0][1], 6),
            "worst_where": cases[0][0],
            "broken": [{"where": where, "figure": round(figure, 6)} for where, figure in broken],
        })
    return rows
