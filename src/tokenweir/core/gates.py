"""In which order are the questions of admission asked?

``GATES`` is the pipeline: each gate answers None to let a request pass to the next question, or the
refusal that ends it. What passes all of them may enter the engine or wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenweir.core.account import Account
from tokenweir.core.capacity import CapacityTest
from tokenweir.core.cost import Estimate
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request
from tokenweir.core.returns import Comer, ReturnDesk
from tokenweir.core.units import Nanos

__all__ = ["GATES", "Candidate", "Gate", "first_refusal"]


# Not frozen: one is made per arrival, lives for the call, and costs a third of a frozen one.
@dataclass(slots=True)
class Candidate:
    """What a gate may look at; it changes nothing."""

    request: Request
    estimate: Estimate
    capacity: CapacityTest
    accounts: Sequence[Account]
    is_draining: bool
    now_ns: Nanos
    desk: ReturnDesk | None = None
    comer: Comer | None = None


Gate = Callable[[Candidate], ReasonCode | None]


def is_open(candidate: Candidate) -> ReasonCode | None:
    """Refuse while the pool is being shut down."""
    return ReasonCode.DRAINING if candidate.is_draining else None


def is_in_time(candidate: Candidate) -> ReasonCode | None:
    """Refuse what is too late already."""
    deadline_ns = candidate.request.deadline_ns
    if deadline_ns is not None and deadline_ns <= candidate.now_ns:
        return ReasonCode.DEADLINE_UNREACHABLE
    return None


def is_possible(candidate: Candidate) -> ReasonCode | None:
    """Refuse for good what no replica could hold even when empty.

    Asked of unhealthy replicas too: being told to come back would not help.
    """
    estimate, accounts = candidate.estimate, candidate.accounts
    for account in accounts:
        if not candidate.capacity.is_impossible(estimate, account):
            return None
    if not accounts:
        return None
    prompt_only = Estimate(estimate.prompt_tokens, 1)
    if all(candidate.capacity.is_impossible(prompt_only, account) for account in accounts):
        return ReasonCode.TOO_LARGE
    return ReasonCode.OUTPUT_MAX_TOO_LARGE


def is_served(candidate: Candidate) -> ReasonCode | None:
    """Refuse while no replica is healthy."""
    for account in candidate.accounts:
        if account.is_healthy:
            return None
    return ReasonCode.NO_HEALTHY_REPLICA


def may_retry(candidate: Candidate) -> ReasonCode | None:
    """Refuse a retry that nobody asked for beyond what its tenant may; see ``ReturnDesk``."""
    desk, comer = candidate.desk, candidate.comer
    if desk is None or comer is None:
        return None
    return desk.refusal(
        candidate.request,
        comer,
        cost_tokens=candidate.estimate.tokens,
        now_ns=candidate.now_ns,
    )


GATES: tuple[Gate, ...] = (is_open, is_possible, is_in_time, is_served, may_retry)


def first_refusal(candidate: Candidate) -> ReasonCode | None:
    """Ask the gates in order and return the first refusal, or None."""
    for gate in GATES:
        reason = gate(candidate)
        if reason is not None:
            return reason
    return None
