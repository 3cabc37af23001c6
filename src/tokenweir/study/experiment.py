"""How is a run described in words, and what is it called in a row?

An ``Experiment`` names everything a run depends on; ``run_experiment`` builds scenario and admitter
from it. Two experiments that differ in policy only see the same requests, declarations and clients.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tokenweir.core.admitter import Admitter, AdmitterConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.capacity import CapacityTest
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.policy import Policy, policy
from tokenweir.core.profile import EngineProfile, profile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import ns_from_s
from tokenweir.sim.clients import ClientModel
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.simulator import Record, Scenario, simulate
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import article_workload, declared_maxima, uniforms

__all__ = ["Experiment", "mean_summary", "run_experiment", "run_seeds", "workload_of"]

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
        slo: What good means.
        checks: Recount the accounts once a simulated second.
    """

    policy: str
    segments: tuple[tuple[float, float], ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    declared: str = "exact"
    discipline: str = "fifo"
    clients: ClientModel = field(default_factory=ClientModel)
    drains: bool = False
    queue: QueueLimits = NO_QUEUE
    engine: EngineProfile = field(default_factory=lambda: profile("article"))
    capacity: CapacityTest | None = None
    slo: Slo = field(default_factory=Slo)
    checks: bool = True


def workload_of(experiment: Experiment, *, seed: int) -> Sequence[Arrival]:
    """Return the unique requests of a run."""
    return experiment.arrivals or article_workload(experiment.segments, seed=seed)


def run_experiment(
    experiment: Experiment, *, seed: int, workload: Sequence[Arrival] | None = None
) -> Record:
    """Run one experiment with one seed.

    Args:
        experiment: What to run.
        seed: Of every random stream.
        workload: The experiment's own workload, where the caller has it already.
    """
    arrivals = workload_of(experiment, seed=seed) if workload is None else workload
    clients = experiment.clients
    ends_s = experiment.segments[-1][0] if experiment.segments else 0.0
    scenario = Scenario(
        arrivals=arrivals,
        declared=declared_maxima(arrivals, experiment.declared, seed=seed),
        draws=uniforms(seed, "clients", size=(len(arrivals), max(1, clients.retries_max))).tolist(),
        profile=experiment.engine,
        end_ns=ns_from_s(ends_s) or arrivals[-1].arrival_ns + 1,
        discipline=experiment.discipline,
        clients=clients,
        drains=experiment.drains,
        checks=experiment.checks,
    )
    return simulate(scenario, admitter_of(experiment, seed=seed))


def admitter_of(experiment: Experiment, *, seed: int) -> Admitter:
    """Build the admitter: owner and ledger live and die together, and telemetry is exact."""
    chosen = policy(experiment.policy)
    if experiment.capacity is not None:
        chosen = Policy(chosen.name, experiment.capacity, chosen.cost)
    config = AdmitterConfig(
        queue=experiment.queue,
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=0),
        calibration=CalibrationConfig(gain=1.0),
        rate_hint_tokens_per_s=experiment.engine.tokens_per_s,
    )
    return Admitter(chosen, rng=random.Random(seed), config=config)


def run_seeds(
    experiments: Sequence[Experiment], *, seeds: Sequence[int], processes: int = 1
) -> list[list[dict[str, Any]]]:
    """Return the summaries of every experiment, by experiment and then by seed, in order."""
    jobs = [(experiment, seed) for experiment in experiments for seed in seeds]
    if processes > 1 and len(jobs) > 1:
        with ProcessPoolExecutor(processes) as pool:
            results = list(pool.map(_summarise, jobs))
    else:
        results = [_summarise(job) for job in jobs]
    size = len(seeds)
    return [results[i * size : (i + 1) * size] for i in range(len(experiments))]


def _summarise(job: tuple[Experiment, int]) -> dict[str, Any]:
    experiment, seed = job
    return summary(run_experiment(experiment, seed=seed), experiment.slo)


def mean_summary(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average every figure over seeds; None wherever one seed has none; texts and tables merge."""
    merged: dict[str, Any] = {}
    for name, first in summaries[0].items():
        values = [s[name] for s in summaries]
        if isinstance(first, dict):
            keys = dict.fromkeys(key for value in values for key in value)
            merged[name] = {
                key: mean_summary([{"v": value.get(key, 0)} for value in values])["v"]
                if not isinstance(first.get(key, values[-1].get(key)), dict)
                else mean_summary([value[key] for value in values if key in value])
                for key in keys
            }
        elif any(value is None for value in values):
            merged[name] = None
        else:
            mean = sum(values) / len(values)
            merged[name] = round(mean, 6) if mean != int(mean) else int(mean)
    return merged
