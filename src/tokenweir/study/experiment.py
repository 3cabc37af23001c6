"""How is a run described in words, and what is it called in a row?

An ``Experiment`` names everything a run depends on; ``run_experiment`` builds scenario and admitter
from it. Two experiments that differ in policy only see the same requests, declarations and clients.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.capacity import CapacityTest
from tokenweir.core.guards import GuardConfig
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.lengths import LengthMode
from tokenweir.core.policy import policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.tenants import TenantConfig
from tokenweir.core.units import ns_from_s
from tokenweir.profiles import profile
from tokenweir.sim.clients import ClientModel
from tokenweir.sim.results import Slo, series, summary
from tokenweir.sim.scenario import Outage, Record, Scenario
from tokenweir.sim.simulator import simulate
from tokenweir.sim.terms import TermsByTenant
from tokenweir.sim.traces import Arrival
from tokenweir.sim.turns import Clients
from tokenweir.sim.workload import article_workload, declared_maxima, uniforms
from tokenweir.study.parallel import map_jobs
from tokenweir.study.weights import weights_of

__all__ = [
    "NO_QUEUE",
    "Experiment",
    "Outcome",
    "mean_of",
    "mean_outcome",
    "run_experiment",
    "run_jobs",
    "run_seeds",
    "workload_of",
]

NO_QUEUE = QueueLimits(items_max=0)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run but for its seed.

    Attributes:
        policy: Row of ``POLICIES``.
        segments: (end in s, rate per s) of Poisson arrivals with the article's lengths; unused
            where ``arrivals`` is given.
        arrivals: A trace's requests, the same for every seed.
        declared: Row of ``DECLARATIONS``.
        discipline: Of the engine's waiting line.
        clients: How clients take refusals and waiting.
        drains: Whether what is open at the end is served; a cut run leaves it unserved.
        queue: How much may wait before the engine; nothing, in the article.
        engine: The engine.
        capacity: Replaces the policy's capacity test, to tune it.
        length_mode: What predicted lengths promise, None for the default.
        guards: What guarded policies keep; its pace is that of ``slo``.
        fairness: Row of ``FAIRNESS``: whose turn it is among tenants.
        ordering: Row of ``ORDERINGS``: the order inside a tenant.
        asked: Tenants with the tokens that they are known to ask for, where weights go by that.
        weights_power: Of a tenant's weight, see ``weights``; 0 for equal ones.
        tenants: Weights and caps, where ``weights_power`` is 0.
        terms: What a tenant's requests carry that the trace does not tell.
        returns: How returns are paced and retries bounded, or None, as in the article, to advise
            each refused request by itself.
        slo: What good means.
        checks: Recount the accounts once a simulated second.
        kv: Row of ``KV_MODELS``: how engines hold KV, and whether they have a prefix cache.
        discounts: Whether a prompt counts less where a prefix cache is thought to have it.
        replicas: Engines in the pool; a load is a multiple of what all of them can serve.
        outages: When which engine is gone.
        tells_profile: Whether the policy is told how fast the engines are.
    """

    policy: str
    segments: tuple[tuple[float, float], ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    declared: str = "exact"
    discipline: str = "fifo"
    clients: Clients = field(default_factory=ClientModel)
    drains: bool = False
    queue: QueueLimits = NO_QUEUE
    engine: EngineProfile = field(default_factory=lambda: profile("article"))
    capacity: CapacityTest | None = None
    length_mode: LengthMode | None = None
    guards: GuardConfig = field(default_factory=GuardConfig)
    fairness: str = "vtc"
    ordering: str = "earliest_deadline"
    asked: tuple[tuple[str, int], ...] = ()
    weights_power: float = 0.0
    tenants: TenantConfig = field(default_factory=TenantConfig)
    terms: TermsByTenant = field(default_factory=TermsByTenant)
    returns: ReturnConfig | None = None
    slo: Slo = field(default_factory=Slo)
    checks: bool = True
    kv: str = "whole"
    discounts: bool = True
    replicas: int = 1
    outages: tuple[Outage, ...] = ()
    tells_profile: bool = True


def workload_of(experiment: Experiment, *, seed: int) -> Sequence[Arrival]:
    """Return the unique requests of a run."""
    return experiment.arrivals or _article_workload(experiment.segments, seed)


@lru_cache(maxsize=8)
def _article_workload(segments: tuple[tuple[float, float], ...], seed: int) -> tuple[Arrival, ...]:
    """Make a workload once for all policies that are compared on it."""
    return tuple(article_workload(segments, seed=seed))


def run_experiment(
    experiment: Experiment,
    *,
    seed: int,
    workload: Sequence[Arrival] | None = None,
    declared: Sequence[int] | None = None,
) -> Record:
    """Run one experiment with one seed.

    Args:
        experiment: What to run.
        seed: Of every random stream.
        workload: The experiment's own workload, where the caller has it already.
        declared: Maxima of its requests, where they are not to be drawn.
    """
    arrivals = workload_of(experiment, seed=seed) if workload is None else workload
    clients = experiment.clients
    ends_s = experiment.segments[-1][0] if experiment.segments else 0.0
    scenario = Scenario(
        arrivals=arrivals,
        declared=(
            declared_maxima(arrivals, experiment.declared, seed=seed)
            if declared is None
            else declared
        ),
        draws=uniforms(seed, "clients", size=(len(arrivals), clients.draws_max)).tolist(),
        profile=experiment.engine,
        end_ns=ns_from_s(ends_s) or arrivals[-1].arrival_ns + 1,
        discipline=experiment.discipline,
        clients=clients,
        drains=experiment.drains,
        checks=experiment.checks,
        kv=experiment.kv,
        discounts=experiment.discounts,
        replicas=experiment.replicas,
        outages=experiment.outages,
        terms=experiment.terms,
        tells_profile=experiment.tells_profile,
    )
    return simulate(scenario, admitter_of(experiment, seed=seed))


def admitter_of(experiment: Experiment, *, seed: int) -> Admitter:
    """Build the admitter: owner and ledger live and die together, and telemetry is exact."""
    chosen = policy(experiment.policy, length_mode=experiment.length_mode)
    if experiment.capacity is not None:
        chosen = replace(chosen, capacity=experiment.capacity)
    rate_hint_tokens_per_s = experiment.engine.tokens_per_s * experiment.replicas
    config = AdmitterConfig(
        queue=experiment.queue,
        fairness=experiment.fairness,
        ordering=experiment.ordering,
        tenants=(
            weights_of(experiment.asked, power=experiment.weights_power)
            if experiment.weights_power
            else experiment.tenants
        ),
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=0),
        calibration=CalibrationConfig(gain=1.0),
        guards=replace(experiment.guards, tpot_ns=experiment.slo.tpot_ns),
        returns=experiment.returns,
        rate_hint_tokens_per_s=rate_hint_tokens_per_s if experiment.tells_profile else None,
    )
    return Admitter(chosen, rng=random.Random(seed), config=config)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run's figures and its course, second by second."""

    summary: dict[str, Any]
    series: list[dict[str, Any]]


def run_seeds(
    experiments: Sequence[Experiment],
    *,
    seeds: Sequence[int],
    processes: int = 1,
    figures: Callable[[Record, Slo], dict[str, Any]] = summary,
    on_run: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Run every experiment with every seed and average each experiment over its seeds.

    Args:
        experiments: What to run.
        seeds: Of every random stream; the same for all experiments.
        processes: Runs at once; the result does not depend on it.
        figures: What is taken from each run; a function of a module, since it may travel.
        on_run: Called after each run.

    Returns:
        One outcome per experiment, in order.
    """
    jobs = [(experiment, seed) for experiment in experiments for seed in seeds]
    outcomes = run_jobs(jobs, processes=processes, figures=figures, on_run=on_run)
    size = len(seeds)
    return [mean_outcome(outcomes[i : i + size]) for i in range(0, len(outcomes), size)]


def run_jobs(
    jobs: Sequence[tuple[Experiment, int]],
    *,
    processes: int = 1,
    figures: Callable[[Record, Slo], dict[str, Any]] = summary,
    on_run: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Run pairs of an experiment and a seed; see ``run_seeds``.

    Returns:
        One outcome per pair, in order.
    """
    outcomes: list[Outcome] = []
    run = partial(_run_job, figures=figures)
    with closing(map_jobs(run, jobs, processes=processes)) as ended:
        for outcome in ended:
            outcomes.append(outcome)
            on_run()
    return outcomes


def _run_job(
    job: tuple[Experiment, int], *, figures: Callable[[Record, Slo], dict[str, Any]]
) -> Outcome:
    experiment, seed = job
    record = run_experiment(experiment, seed=seed)
    return Outcome(figures(record, experiment.slo), series(record))


def mean_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of several outcomes; a course ends with the shortest."""
    merged: dict[str, Any] = mean_of([o.summary for o in outcomes])
    seconds = zip(*(o.series for o in outcomes), strict=False)
    return Outcome(merged, [mean_of(list(rows)) for rows in seconds])


def mean_of(values: Sequence[Any]) -> Any:
    """Average numbers, and dicts of them key by key; None where any value is None.

    A claim holds where it holds in all; a word is the same in all.
    """
    if any(value is None for value in values):
        return None
    if isinstance(values[0], bool):
        return all(values)
    if isinstance(values[0], str):
        return values[0]
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: mean_of(_column(values, key)) for key in keys}
    mean = sum(values) / len(values)
    return int(mean) if mean == int(mean) else round(mean, 6)


def _column(values: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """Return one key's values; a missing count is 0, a missing table has no say."""
    present = [value[key] for value in values if key in value]
    if isinstance(present[0], dict):
        return present
    return present + [0] * (len(values) - len(present))
