"""What did the user ask to simulate? Words of the command line become an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FAIRNESS
from tokenweir.core.policy import POLICIES, policy
from tokenweir.core.queues import ORDERINGS, QueueLimits
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.units import Nanos
from tokenweir.engine.batch import DISCIPLINES
from tokenweir.profiles import profile
from tokenweir.sim.clients import RETRY_NAMES, client_model
from tokenweir.sim.replica import KV_MODELS
from tokenweir.sim.results import Slo
from tokenweir.sim.scenario import REPLICAS_MAX
from tokenweir.sim.traces import BUNDLED, Arrival, read_trace
from tokenweir.sim.workload import DECLARATIONS, Surge, article_workload, parse_surge
from tokenweir.study.experiment import Experiment

__all__ = [
    "DECLARATION_NAMES",
    "DISCIPLINE_NAMES",
    "FAIRNESS_NAMES",
    "ORDERING_NAMES",
    "RETRY_NAMES",
    "TRACE_NAMES",
    "Slo",
    "Wishes",
    "experiment_from",
    "is_drawn",
    "policies_from",
    "surge_from",
    "trace_from",
]

DECLARATION_NAMES = tuple(DECLARATIONS)
DISCIPLINE_NAMES = DISCIPLINES
FAIRNESS_NAMES = tuple(FAIRNESS)
ORDERING_NAMES = tuple(ORDERINGS)

# Poisson arrivals with the article's lengths, (end in s, rate per s): two minutes at about what its
# engine can serve, and at its steady overload.
_DRAWN = {"article-lengths": ((120.0, 44.3),), "article-overload": ((120.0, 80.0),)}

TRACE_NAMES = (*BUNDLED, *_DRAWN)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options that every simulated run takes, as they were given.

    Attributes:
        profile: Name or file of a profile.
        queue: Discipline of the engine's waiting line.
        declared: Row of ``DECLARATIONS``.
        retry: Row of ``RETRY_NAMES``.
        retries: Attempts after the first.
        timeout_ns: A client's patience for the first token, or None.
        wait_items: Requests that may wait before the engine.
        wait_ns: Longest wait there.
        slo: What good means.
        drains: Whether what is open at the end is served.
        checks: Recount the accounts once a simulated second.
        fairness: Row of ``FAIRNESS``.
        ordering: Row of ``ORDERINGS``.
        paces_returns: Whether refused requests get return slots, and retries a budget.
        kv: Row of ``KV_MODELS``.
        discounts: Whether a prompt counts less where a prefix cache is thought to have it.
        replicas: Engines in the pool.
    """

    profile: str
    queue: str
    declared: str
    retry: str
    retries: int
    timeout_ns: Nanos | None
    wait_items: int
    wait_ns: Nanos
    slo: Slo
    drains: bool
    checks: bool
    fairness: str = "vtc"
    ordering: str = "earliest_deadline"
    paces_returns: bool = True
    kv: str = "whole"
    discounts: bool = True
    replicas: int = 1


def experiment_from(wishes: Wishes) -> Experiment:
    """Check the words and build the experiment; its policy is still to be chosen.

    Raises:
        ConfigError: A word is unknown; the text lists what is allowed.
    """
    if wishes.declared not in DECLARATIONS:
        raise ConfigError(
            f"unknown declared maximum {wishes.declared!r}, allowed: {', '.join(DECLARATIONS)}"
        )
    if wishes.queue not in DISCIPLINES:
        raise ConfigError(f"unknown queue {wishes.queue!r}, allowed: {', '.join(DISCIPLINES)}")
    for what, word, rows in (
        ("fairness", wishes.fairness, FAIRNESS),
        ("ordering", wishes.ordering, ORDERINGS),
        ("KV model", wishes.kv, KV_MODELS),
    ):
        if word not in rows:
            raise ConfigError(f"unknown {what} {word!r}, allowed: {', '.join(rows)}")
    if not 1 <= wishes.replicas <= REPLICAS_MAX:
        raise ConfigError(
            f"--replicas {wishes.replicas} is not allowed, allowed: 1 to {REPLICAS_MAX}"
        )
    if wishes.retries < 0:
        raise ConfigError(f"--retries {wishes.retries} is not allowed, allowed: 0 or more")
    return Experiment(
        policy="none",
        declared=wishes.declared,
        discipline=wishes.queue,
        clients=client_model(
            wishes.retry, retries_max=wishes.retries, timeout_ns=wishes.timeout_ns
        ),
        drains=wishes.drains,
        queue=QueueLimits(
            items_max=wishes.wait_items,
            wait_ns_max=wishes.wait_ns,
            first_token_slo_ns=wishes.slo.ttft_ns,
            first_token_unloaded_ratio=wishes.slo.unloaded_ratio,
        ),
        engine=profile(wishes.profile),
        slo=wishes.slo,
        checks=wishes.checks,
        fairness=wishes.fairness,
        ordering=wishes.ordering,
        returns=ReturnConfig() if wishes.paces_returns else None,
        kv=wishes.kv,
        discounts=wishes.discounts,
        replicas=wishes.replicas,
    )


def policies_from(text: str) -> list[str]:
    """Read ``all`` or a comma-separated list of policies.

    Raises:
        ConfigError: One is unknown; the text lists what is allowed.
    """
    names = list(POLICIES) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        policy(name)
    return names


def is_drawn(file: str) -> bool:
    """Tell whether a trace is drawn, so that every seed has requests of its own."""
    return file in _DRAWN


def trace_from(file: str, *, seed: int = 1) -> list[Arrival]:
    """Read a trace by path or short name, or draw one that has the article's lengths.

    Args:
        file: A path, or a row of ``TRACE_NAMES``.
        seed: Of a trace that is drawn; a recorded one is the same for all.

    Raises:
        ConfigError: See ``read_trace``.
    """
    if file in _DRAWN:
        return article_workload(_DRAWN[file], seed=seed)
    return read_trace(file)


def surge_from(text: str | None) -> Surge | None:
    """Read a step such as ``3x@30s``; see ``parse_surge``."""
    return None if text is None else parse_surge(text)
