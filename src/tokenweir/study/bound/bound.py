"""How much goodput could anybody have had on this engine who knew every length beforehand?

Levels, each never below the one before it:

* ``E``: linear program for engines with steps of fixed length that decode first and never pause
  or preempt what they serve well. It does not hold for a run that preempted;
* ``L``: linear program for any scheduler, with pauses, preemption and recompute;
* ``knapsack``: see ``knapsack``.

Validity: take any run and set x_i = 1 for its good requests. What they took, step by step, lies in
their windows and is at least ``least_work``; spread evenly over each step, no bucket gives more
than its rate. So x is feasible, and the program's optimum is at least the run's goodput.
``certified_bound`` keeps that true of the number that is printed.
Properties: more capacity or a looser SLO never lowers it, for a given width of buckets.
Trade-off: work is divisible and a request's pace is free inside its window, so nobody reaches it.
After the last arrival capacity is left for what is open; in a run of less than two minutes that
tail is a visible part of the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.study.bound.certificate import certified_bound
from tokenweir.study.bound.knapsack import knapsack_bound
from tokenweir.study.bound.program import Pool, Program, pools_of, program_of
from tokenweir.study.bound.requests import Floats, Requests, values_of
from tokenweir.study.bound.windows import Buckets, width_for
from tokenweir.study.bound.work import Work, least_work

__all__ = ["KINDS", "LEVELS", "Bound", "Figure", "bounds_of", "levels_for", "tightest_level"]

LEVELS: tuple[str, ...] = ("E", "L", "knapsack")
KINDS: tuple[str, ...] = ("count", "tokens")


@dataclass(frozen=True, slots=True)
class Figure:
    """One bound.

    Attributes:
        value: Largest possible share of all, 0 to 1.
        shares: What the solution behind it serves of each request, 0 to 1, shape (n,).
        binding: What limits it: the resource with the largest share of the prices, or None.
    """

    value: float
    shares: Floats = field(repr=False)
    binding: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Bounds of one level.

    Attributes:
        level: Row of ``LEVELS``.
        width_ns: Of its buckets.
        figures: By row of ``KINDS``.
    """

    level: str
    width_ns: Nanos
    figures: Mapping[str, Figure]

    def by_tenant(self, requests: Requests, *, kind: str) -> dict[str, float]:
        """Return each tenant's part of the bound as a share of all its requests, 0 to 1.

        The solution behind a bound is one of many: a tenant may be better off in another, so a
        tenant's own goodput can exceed its part. Only the sum over tenants is a bound.
        """
        tenants, which = np.unique(np.array(requests.tenants), return_inverse=True)
        values = values_of(requests, kind=kind)
        parts = np.bincount(which, weights=values * self.figures[kind].shares)
        wholes = np.bincount(which, weights=values)
        return dict(zip(tenants.tolist(), (parts / wholes).tolist(), strict=True))


def tightest_level(profile: EngineProfile) -> str:
    """Return the tightest level that fits an engine."""
    return "E" if profile.is_paced else "L"


def levels_for(text: str, profile: EngineProfile) -> list[str]:
    """Read a level, or ``all`` that fit an engine.

    Raises:
        ConfigError: It is not one.
    """
    if text == "all":
        return [level for level in LEVELS if level != "E" or profile.is_paced]
    if text not in LEVELS:
        raise ConfigError(f"--level {text!r} is not allowed, allowed: {', '.join(LEVELS)}, all")
    return [text]


def bounds_of(
    requests: Requests,
    profile: EngineProfile,
    *,
    levels: Sequence[str],
    width_ns: Nanos | None = None,
    replicas: int = 1,
    on_figure: Callable[[], None] = lambda: None,
) -> dict[str, Bound]:
    """Return the bounds of some levels, all with buckets of one width.

    Args:
        requests: Unique requests.
        profile: The engine.
        levels: Rows of ``LEVELS``.
        width_ns: Of the buckets, or None for the smallest, from 1 s up, that is fast enough.
        replicas: How many engines there are.
        on_figure: Called after each figure; there is one per level and kind.

    Raises:
        ConfigError: A level does not fit the engine, or the solver is not installed.
    """
    works = {
        level: least_work(requests, profile, pauses=level != "E", replicas=replicas)
        for level in dict.fromkeys(levels)
    }
    width_ns = width_ns or max(width_for(work) for work in works.values())
    bounds = {}
    for level, work in works.items():
        pools = pools_of(work, Buckets(width_ns))
        program = program_of(pools, requests_count=requests.count) if level != "knapsack" else None
        figures = {}
        for kind in KINDS:
            figures[kind] = _figure(
                work, pools, values=values_of(requests, kind=kind), program=program
            )
            on_figure()
        bounds[level] = Bound(level, width_ns, figures)
    return bounds


def _figure(
    work: Work, pools: Sequence[Pool], *, values: Floats, program: Program | None
) -> Figure:
    if program is None:
        return Figure(*knapsack_bound(pools, values, can_be_good=work.can_be_good))
    try:
        from tokenweir.study.bound.solver import solve
    except ImportError:
        raise ConfigError(
            "levels E and L need the solver highspy, install it with the extra: tokenweir[study]"
        ) from None
    solution = solve(program, values)
    value = certified_bound(pools, values, can_be_good=work.can_be_good, prices=solution.prices)
    worth = {name: float(price.sum()) for name, price in solution.prices.items()}
    binding = max(worth, key=lambda name: worth[name], default=None)
    if binding is not None and worth[binding] <= 0:
        binding = None
    return Figure(min(value, 1.0), solution.shares * work.can_be_good, binding)
