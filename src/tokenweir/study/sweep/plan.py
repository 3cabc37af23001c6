"""Which runs make a sweep? Named plans, and what the command line changes in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.study.load.plan import LOAD_MAX, LOAD_MIN
from tokenweir.study.plan import Wishes
from tokenweir.study.sweep.contenders import Contender, contenders_from
from tokenweir.study.window import COOLDOWN, WARMUP

__all__ = ["PLANS", "Cell", "PlanRow", "SweepPlan", "loads_from", "plan_named", "sweep_plan"]

_REAL = ("azure-conv", "mooncake-conv", "servegen-cheap", "servegen-costly")
_ENGINES = ("8b-h100", "8b-a100", "70b-4xh100")
_RIVALS = ("predictive", "token", "concurrency*", "aimd", "engine_queue*")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A named plan.

    Attributes:
        what: One line for a reader.
        traces: As for ``replay``.
        profiles: Names or files of profiles.
        loads: Multiples of capacity.
        policies: Contenders; the first one is judged against the others.
        requests: Measured, or None for all.
        slo: What good means.
        warmup: Requests before.
        cooldown: Requests after.
        tuning_loads: Loads at which limits are tuned, or empty for ``loads``.
    """

    what: str
    traces: tuple[str, ...]
    profiles: tuple[str, ...]
    loads: tuple[float, ...]
    policies: tuple[str, ...]
    requests: int | None
    slo: Slo
    warmup: int = WARMUP
    cooldown: int = COOLDOWN
    tuning_loads: tuple[float, ...] = ()


_REAL_SLO = Slo(unloaded_ratio=3.0)

PLANS: dict[str, PlanRow] = {
    "quick": PlanRow(
        "the article's engine in a minute",
        ("article-overload",),
        ("article",),
        (0.7, 1.0, 1.5, 2.0, 3.0),
        ("predictive", "token", "concurrency*", "none"),
        3_000,
        Slo(),
    ),
    "real": PlanRow(
        "four real traces on three engines, against rivals at their best",
        _REAL,
        _ENGINES,
        (0.7, 1.0, 1.5, 3.0),
        _RIVALS,
        3_000,
        _REAL_SLO,
    ),
    "real-full": PlanRow(
        "the same traces to their ends, below and far above capacity",
        _REAL,
        _ENGINES,
        (0.7, 3.0),
        _RIVALS,
        None,
        _REAL_SLO,
        tuning_loads=(0.7, 1.0, 1.5, 3.0),
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload at one load."""

    trace: str
    profile: str
    load: float


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep, all of it.

    Attributes:
        name: Row of ``PLANS`` it started from.
        what: That row's line for a reader.
        traces: As for ``replay``.
        profiles: Names or files of profiles.
        loads: Multiples of capacity, ascending.
        contenders: The first one is judged against the others.
        seeds: Of every random stream.
        requests: Measured, or None for all.
        tuning_requests: Measured while limits are tuned.
        tuning_loads: Loads at which they are.
        warmup: Requests before.
        cooldown: Requests after.
        wishes: Everything else but the profile.
    """

    name: str
    what: str
    traces: tuple[str, ...]
    profiles: tuple[str, ...]
    loads: tuple[float, ...]
    contenders: tuple[Contender, ...]
    seeds: tuple[int, ...]
    requests: int | None
    tuning_requests: int
    tuning_loads: tuple[float, ...]
    warmup: int
    cooldown: int
    wishes: Wishes

    def workloads(self) -> list[tuple[str, str]]:
        """Return every trace on every profile."""
        return list(product(self.traces, self.profiles))

    def cells(self) -> list[Cell]:
        """Return every workload at every load."""
        return [Cell(*row) for row in product(self.traces, self.profiles, self.loads)]


def plan_named(name: str) -> PlanRow:
    """Return a plan by name.

    Raises:
        ConfigError: No such row in ``PLANS``.
    """
    if name not in PLANS:
        raise ConfigError(f"unknown plan {name!r}, allowed: {', '.join(PLANS)}")
    return PLANS[name]


def loads_from(text: str) -> tuple[float, ...]:
    """Read comma-separated loads, ascending.

    Raises:
        ConfigError: One is no number or out of range, or there twice.
    """
    allowed = f"allowed: numbers from {LOAD_MIN:g} to {LOAD_MAX:,.0f}, each once, as in 0.7,1.5"
    try:
        loads = tuple(sorted(float(word) for word in text.split(",")))
    except ValueError:
        raise ConfigError(f"--load {text!r} is not allowed, {allowed}") from None
    if len(set(loads)) < len(loads) or not all(LOAD_MIN <= load <= LOAD_MAX for load in loads):
        raise ConfigError(f"--load {text!r} is not allowed, {allowed}")
    return loads


def sweep_plan(
    row: PlanRow,
    *,
    name: str,
    wishes: Wishes,
    seeds: tuple[int, ...],
    tuning_requests: int,
) -> SweepPlan:
    """Make a row of ``PLANS``, changed or not, into a plan.

    Raises:
        ConfigError: A profile or a policy is unknown, or something is named twice.
    """
    for engine in row.profiles:
        profile(engine)
    for what, names in (("trace", row.traces), ("profile", row.profiles)):
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ConfigError(f"{what} {twice!r} is named twice, allowed: once")
    return SweepPlan(
        name=name,
        what=row.what,
        traces=row.traces,
        profiles=row.profiles,
        loads=row.loads,
        contenders=tuple(contenders_from(row.policies)),
        seeds=seeds,
        requests=row.requests,
        tuning_requests=tuning_requests,
        tuning_loads=row.tuning_loads or row.loads,
        warmup=row.warmup,
        cooldown=row.cooldown,
        wishes=replace(wishes, slo=row.slo),
    )
