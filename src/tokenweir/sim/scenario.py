"""What is simulated, and what does a run leave behind?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.sim.attempt import Attempt
from tokenweir.sim.clients import ClientModel
from tokenweir.sim.replica import KV_MODELS, EngineTotals
from tokenweir.sim.terms import TermsByTenant
from tokenweir.sim.traces import Arrival
from tokenweir.sim.turns import Clients

__all__ = ["REPLICAS_MAX", "Outage", "Record", "Sample", "Scenario"]

# A pool of more is several pools: every replica is asked at each decision.
REPLICAS_MAX = 64


@dataclass(frozen=True, slots=True)
class Outage:
    """An engine dies with all it holds, and comes back empty.

    Attributes:
        replica: Which one, counted from 0.
        down_ns: When it dies.
        up_ns: When it is there again, or None.
    """

    replica: int
    down_ns: Nanos
    up_ns: Nanos | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run depends on but the policy.

    Attributes:
        arrivals: Unique requests, by time.
        declared: Declared output maximum of each, in the same order.
        draws: Clients' chances, shape (unique requests, draws of a client).
        profile: The engine.
        discipline: Of the engine's own waiting line.
        clients: How clients take refusals and waiting.
        end_ns: When arrivals stop, and where a cut run ends.
        drains: Whether the run goes on until nothing is open; a cut run leaves it unserved.
        checks: Recount ledger, queue and engines at every sample.
        kv: Row of ``KV_MODELS``: how the engines hold KV.
        discounts: Whether a prompt counts less where a prefix cache is thought to have it.
        replicas: Engines, all alike.
        outages: When which of them is gone.
        terms: What a tenant's requests carry that the trace does not tell.
        tells_profile: Whether the policy is told how fast the engines are.
    """

    arrivals: Sequence[Arrival]
    declared: Sequence[int]
    draws: Sequence[Sequence[float]]
    profile: EngineProfile
    end_ns: Nanos
    discipline: str = "fifo"
    clients: Clients = field(default_factory=ClientModel)
    drains: bool = True
    checks: bool = True
    kv: str = "whole"
    discounts: bool = True
    replicas: int = 1
    outages: Sequence[Outage] = ()
    terms: TermsByTenant = field(default_factory=TermsByTenant)
    tells_profile: bool = True

    def __post_init__(self) -> None:
        """Check the words and relations."""
        if self.kv not in KV_MODELS:
            raise ConfigError(f"unknown KV model {self.kv!r}, allowed: {', '.join(KV_MODELS)}")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError(
                f"replicas {self.replicas} is not allowed, allowed: 1 to {REPLICAS_MAX}"
            )
        for outage in self.outages:
            if not 0 <= outage.replica < self.replicas:
                raise ConfigError(
                    f"an outage of replica {outage.replica} is not allowed, allowed: 0 to "
                    f"{self.replicas - 1}"
                )


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one second of the run."""

    time_s: int
    running: int
    waiting_in_engine: int
    queued: int
    kv_fraction: float


@dataclass(frozen=True, slots=True)
class Record:
    """What a run left behind.

    Attributes:
        scenario: What was run.
        attempts: In order of arrival.
        samples: One per second.
        span_ns: Length of the run.
        engines: What each engine did, in order of the replicas.
        used_tokens_after: What the ledger still holds at the end.
        index_precision: Of the index that discounts what engines cache, None where there is none.
    """

    scenario: Scenario
    attempts: Sequence[Attempt]
    samples: Sequence[Sample]
    span_ns: Nanos
    engines: Sequence[EngineTotals]
    used_tokens_after: int
    index_precision: float | None = None

    @property
    def worked_tokens(self) -> int:
        """Tokens that the engines worked on."""
        return sum(engine.worked_tokens for engine in self.engines)

    @property
    def recomputed_tokens(self) -> int:
        """Of them, work that preemption had undone."""
        return sum(engine.recomputed_tokens for engine in self.engines)

    @property
    def preemptions(self) -> int:
        """How often an engine took a request's KV."""
        return sum(engine.preemptions for engine in self.engines)
