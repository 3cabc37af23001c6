"""What tests of the core build again and again: requests, replicas, an admitter, a fixed chance."""

import dataclasses
from collections.abc import Iterable

from tokenweir.core.account import Account
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.cost import Estimate
from tokenweir.core.decision import Admit, Effect, Enqueue, Reject
from tokenweir.core.guards import GuardConfig
from tokenweir.core.ledger import Ledger, LedgerConfig
from tokenweir.core.policy import Policy, policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, ReplicaId, ReservationId, TicketId

__all__ = [
    "MS",
    "ONE",
    "S",
    "TWO",
    "FixedRng",
    "account_with",
    "admit",
    "admitter_with",
    "enqueue",
    "ledger_with",
    "reject",
    "request",
    "reservation",
    "settle",
    "small_policy",
    "stepped_peak",
    "ticket",
]

S = NS_PER_S
MS = NS_PER_MS
ONE = ReplicaId("one")
TWO = ReplicaId("two")
# What ``small_policy`` caps: low enough to be reached by a handful of requests.
SMALL_IN_FLIGHT_MAX = 2


class FixedRng:
    """Chance that always draws the same."""

    def __init__(self, draw: float = 0.0) -> None:
        self.draw = draw

    def random(self) -> float:
        """Return the draw."""
        return self.draw


def small_policy(name: str) -> Policy:
    """Build a policy whose concurrency cap a few requests can reach."""
    built = policy(name)
    if isinstance(built.capacity, Concurrency):
        return dataclasses.replace(built, capacity=Concurrency(in_flight_max=SMALL_IN_FLIGHT_MAX))
    return built


def admitter_with(
    name: str = "ledger",
    *,
    kv_tokens: int | None = 1_000,
    replicas: tuple[ReplicaId, ...] = (ONE,),
    profile: EngineProfile | None = None,
    queue: QueueLimits | None = None,
    ledger: LedgerConfig | None = None,
    guards: GuardConfig | None = None,
    rate_hint_tokens_per_s: float | None = None,
    returns: ReturnConfig | None = None,
) -> Admitter:
    """Build an admitter over equal replicas; it paces no returns unless told to."""
    admitter = Admitter(
        small_policy(name),
        rng=FixedRng(),
        config=AdmitterConfig(
            queue=queue or QueueLimits(),
            ledger=ledger or LedgerConfig(),
            guards=guards or GuardConfig(),
            rate_hint_tokens_per_s=rate_hint_tokens_per_s,
            returns=returns,
        ),
    )
    for replica in replicas:
        admitter.add_replica(replica, kv_tokens=kv_tokens, profile=profile)
    return admitter


def ledger_with(
    config: LedgerConfig | None = None,
    *,
    kv_tokens: int | None = 1_000,
    tracks_batch: bool = False,
) -> Ledger:
    """Build a ledger with one replica."""
    ledger = Ledger(config)
    ledger.add_replica(
        ONE, kv_tokens=kv_tokens, calibration=CalibrationConfig(), tracks_batch=tracks_batch
    )
    return ledger


def account_with(
    *,
    kv_tokens: int | None = 1_000,
    reserved: tuple[tuple[int, int], ...] = (),
    draining_tokens: int = 0,
    unattributed_tokens: int = 0,
    profile: EngineProfile | None = None,
) -> Account:
    """Build an account by hand from (prompt, output) pairs, as the ledger would have written it."""
    account = Account(
        ONE,
        kv_tokens=kv_tokens,
        calibration=CalibrationConfig(),
        profile=profile,
        tracks_batch=True,
    )
    assert account.batch is not None
    for index, (prompt, output) in enumerate(reserved):
        account.batch.add(reservation(f"r{index}"), held_tokens=prompt, remaining=output)
        account.reading.add(reservation(f"r{index}"), tokens=prompt, pairs=0.0, now_ns=0)
    account.in_flight = len(reserved)
    account.reserved_tokens = sum(prompt + output for prompt, output in reserved)
    account.held_tokens = account.held_prompt_tokens = sum(prompt for prompt, _ in reserved)
    account.draining_tokens = draining_tokens
    account.unattributed_tokens = unattributed_tokens
    return account


def stepped_peak(rows: Iterable[tuple[int, int]]) -> int:
    """Step a batch of (held, remaining) tokens to its end, and return the most it ever held."""
    running = [(held, remaining) for held, remaining in rows]
    peak = 0
    while running:
        peak = max(peak, sum(held for held, _ in running))
        running = [(held + 1, remaining - 1) for held, remaining in running if remaining > 0]
    return peak


def request(
    request_id: str,
    *,
    prompt_tokens: int = 100,
    output_tokens_max: int = 100,
    deadline_ns: Nanos | None = None,
) -> Request:
    """Build a request of 200 tokens, unless told otherwise."""
    return Request(request_id, prompt_tokens, output_tokens_max, deadline_ns=deadline_ns)


def reservation(request_id: str) -> ReservationId:
    """Return the id under which a request holds its reservation."""
    return ReservationId(request_id)


def ticket(request_id: str) -> TicketId:
    """Return the id under which a request waits."""
    return TicketId(request_id)


def admit(admitter: Admitter, asked: Request, *, now_ns: Nanos = 0) -> Admit:
    """Let a request arrive that must be admitted."""
    decision = admitter.arrive(asked, now_ns=now_ns)
    assert isinstance(decision, Admit), decision
    return decision


def enqueue(admitter: Admitter, asked: Request, *, now_ns: Nanos = 0) -> Enqueue:
    """Let a request arrive that must wait."""
    decision = admitter.arrive(asked, now_ns=now_ns)
    assert isinstance(decision, Enqueue), decision
    return decision


def reject(admitter: Admitter, asked: Request, *, now_ns: Nanos = 0) -> Reject:
    """Let a request arrive that must be refused."""
    decision = admitter.arrive(asked, now_ns=now_ns)
    assert isinstance(decision, Reject), decision
    return decision


def settle(
    admitter: Admitter,
    name: str,
    usage: Usage,
    *,
    outcome: Outcome = Outcome.FINISHED,
    now_ns: Nanos = 0,
) -> tuple[Effect, ...]:
    """Let a request end and advance, as a driver does."""
    admitter.settle(reservation(name), usage, outcome=outcome, now_ns=now_ns)
    return admitter.advance(now_ns=now_ns)


def estimate(tokens: int) -> Estimate:
    """Return an estimate of this many tokens, one of them output."""
    return Estimate(tokens - 1, 1)
