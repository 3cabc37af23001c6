"""What is one piece of work of a sweep, and what does it measure?

A job names everything its figures depend on, in words that fit on a line of JSON: it can be sent to
another process or machine, and its figures can be kept and found again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenweir
from tokenweir.profiles import PROFILE_NAMES
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.bound import bounds_of, tightest_level
from tokenweir.study.bound.requests import requests_from
from tokenweir.study.experiment import NO_QUEUE, Experiment, run_experiment
from tokenweir.study.knobs import Setting, with_knobs
from tokenweir.study.plan import TRACE_NAMES, Wishes, experiment_from, is_drawn, trace_from
from tokenweir.study.sweep.binding import binding_of, seats_allowed
from tokenweir.study.sweep.plan import Cell
from tokenweir.study.weights import asked_tokens
from tokenweir.study.window import Window, window_figures, windowed

__all__ = [
    "BOUND",
    "Figures",
    "Job",
    "fingerprint",
    "key_of",
    "measure",
    "prepared_job",
    "workload_facts",
]

Figures = dict[str, Any]

# Stands where a policy stands: what nobody can exceed.
BOUND = "bound"

# Policies that stand for an engine without anything before it: what it does not take is refused.
_UNQUEUED = frozenset({"engine_queue"})

# What a figure depends on besides its job: other code may give other figures.
_SOURCES = (
    *("core", "engine", "profiles", "sim", "study/bound", "study/experiment.py", "study/plan.py"),
    *("study/window.py", "study/sweep/measure.py", "study/knobs.py", "study/weights.py"),
)
_SUFFIXES = (".py", ".toml")


@dataclass(frozen=True, slots=True)
class Job:
    """One run, or the bound of one.

    Attributes:
        cell: Workload and load.
        policy: Row of ``POLICIES``, or ``BOUND``.
        setting: Knobs that are turned.
        seed: Of every random stream.
        requests: Measured, or None for all.
        warmup: Requests before.
        cooldown: Requests after.
        wishes: Everything else but the profile.
        skip: Requests of the trace before the warm-up, which are not run.
    """

    cell: Cell
    policy: str
    setting: Setting
    seed: int
    requests: int | None
    warmup: int
    cooldown: int
    wishes: Wishes
    skip: int = 0


def key_of(job: Job) -> str:
    """Return the job as one line of JSON, the same for the same job and the same files."""
    row = asdict(job)
    files = {name: _digest(name) for name in (job.cell.trace, job.cell.profile)}
    row["files"] = {name: digest for name, digest in files.items() if digest is not None}
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=64)
def _digest(name: str) -> str | None:
    """Return a short hash of a user's own file; what comes with the package has none."""
    if name in TRACE_NAMES or name in PROFILE_NAMES:
        return None
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()[:12]
    except OSError:
        return None


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return a short hash of the code that figures depend on."""
    package = Path(tokenweir.__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        path = package / name
        files = path.rglob("*") if path.is_dir() else [path]
        for file in sorted(file for file in files if file.suffix in _SUFFIXES):
            digest.update(f"{file.relative_to(package)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def measure(job: Job) -> Figures:
    """Run a job.

    Returns:
        Of a run: see ``window_figures``. Of a bound: its level, and the most goodput as shares of
        the measured requests (``count``, ``tokens``).
    """
    experiment, window = prepared_job(job)
    if job.policy == BOUND:
        return _bound(experiment, window)
    record = run_experiment(experiment, seed=job.seed)
    return window_figures(record, experiment.slo, window=window)


def prepared_job(job: Job) -> tuple[Experiment, Window]:
    """Return what is run, and which part of it counts.

    Raises:
        ConfigError: See ``experiment_from``, ``trace_from``, ``windowed`` and ``with_knobs``.
    """
    experiment = experiment_from(replace(job.wishes, profile=job.cell.profile))
    trace = _trace(job.cell.trace, job.seed if is_drawn(job.cell.trace) else 1)
    window = windowed(
        trace[job.skip :],
        experiment.engine,
        load=job.cell.load,
        requests=job.requests,
        warmup=job.warmup,
        cooldown=job.cooldown,
    )
    # Of a part that judges, only what came before it may be known.
    known = trace[: job.skip + job.warmup] if job.skip else window.arrivals
    experiment = replace(experiment, arrivals=window.arrivals, asked=asked_tokens(known))
    if job.policy == BOUND:
        return experiment, window
    experiment = replace(experiment, policy=job.policy)
    if job.policy in _UNQUEUED:
        experiment = replace(experiment, queue=NO_QUEUE)
    return with_knobs(experiment, job.setting), window


@lru_cache(maxsize=4)
def _trace(name: str, seed: int) -> tuple[Arrival, ...]:
    """Read a trace once for all jobs of a process."""
    return tuple(trace_from(name, seed=seed))


def _bound(experiment: Experiment, window: Window) -> Figures:
    """Bound the measured requests as if the others were not there, which cannot lower it."""
    measured, engine = window.measured, experiment.engine
    requests = requests_from(measured, experiment.slo, engine=engine)
    level = tightest_level(engine)
    bound = bounds_of(requests, engine, levels=[level])[level]
    return {
        "level": level,
        **{kind: round(figure.value, 6) for kind, figure in bound.figures.items()},
    }


def workload_facts(job: Job) -> dict[str, float | str]:
    """Return what a job's measured requests ask of its engine: capacity, and what binds."""
    experiment, window = prepared_job(job)
    engine, tpot_ns = experiment.engine, experiment.slo.tpot_ns
    allowed = seats_allowed(window.measured, engine, tpot_ns=tpot_ns)
    return {
        "capacity_rps": round(window.capacity_rps, 6),
        "binds": binding_of(allowed),
        "binds_first": binding_of(allowed, with_budget=True),
        **{f"seats_{name}": round(seats, 1) for name, seats in allowed.items()},
    }
