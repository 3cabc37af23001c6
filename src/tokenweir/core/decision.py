"""What can the answer be, and what has the driver to do afterwards?

Four decisions leave ``arrive``: ``Admit``, ``Enqueue``, ``Degrade``, ``Reject``. What happens to a
queued request later, and what is lost by itself, leaves ``advance`` as an effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tokenweir.core.pausing import PauseCause
from tokenweir.core.reasons import REASONS, ReasonCode, ReasonRow
from tokenweir.core.request import ReturnTicket
from tokenweir.core.retry import RETRY_AFTER_NS_MAX
from tokenweir.core.units import Nanos, ReplicaId, ReservationId, TicketId

__all__ = [
    "Admit",
    "Decision",
    "Degrade",
    "Dispatch",
    "DriftAlarm",
    "Effect",
    "Enqueue",
    "Expire",
    "Interrupt",
    "LeaseLost",
    "PauseChanged",
    "Reject",
]


@dataclass(frozen=True, slots=True)
class Reject:
    """The request is refused; nothing of it is kept but an audit row.

    Attributes:
        reason: Stable code.
        retry_after_ns: When a retry may fit, from now; None where no retry can help.
        wait_ns: The true predicted wait, also where it is too long to advise a retry.
        used_tokens: What was in use of ``limit_tokens`` when it was decided.
        limit_tokens: The limit that was hit, 0 where it is not one of tokens.
        cost_tokens: What the request would have reserved.
        ticket: For the time it may come back, to be sealed for its client.
    """

    reason: ReasonCode
    retry_after_ns: Nanos | None = None
    wait_ns: Nanos | None = None
    used_tokens: int = 0
    limit_tokens: int = 0
    cost_tokens: int = 0
    ticket: ReturnTicket | None = None

    @property
    def row(self) -> ReasonRow:
        """What the reason means outside."""
        return REASONS[self.reason]

    @property
    def advised_ns(self) -> Nanos | None:
        """When its client is told to come back, from now, or None where it is told not to retry."""
        advised_ns = self.retry_after_ns
        if advised_ns is None or not self.row.is_retryable:
            return None
        return advised_ns if 0 < advised_ns <= RETRY_AFTER_NS_MAX else None


@dataclass(frozen=True, slots=True)
class Admit:
    """The request may enter the replica now and holds a reservation there.

    Attributes:
        reservation_id: To be settled or released exactly once.
        replica: Where it goes.
        reserved_tokens: What it holds.
        reason: ``FITS``, or ``BYPASSED`` where no test was asked.
        overridden: What would have been answered, in observe mode.
    """

    reservation_id: ReservationId
    replica: ReplicaId
    reserved_tokens: int
    reason: ReasonCode = ReasonCode.FITS
    overridden: Reject | Enqueue | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """The request waits in the pool's queue; a later effect dispatches or expires it.

    Attributes:
        ticket_id: To be cancelled when the client leaves.
        position: Requests ahead of it, 0 for the next one.
        expected_wait_ns: Predicted from the backlog and the service rate.
        expires_ns: When it will be dropped at the latest.
        is_returning: Whether it was told to come back now, and goes before others of its tenant.
    """

    ticket_id: TicketId
    position: int
    expected_wait_ns: Nanos
    expires_ns: Nanos
    is_returning: bool = False


@dataclass(frozen=True, slots=True)
class Degrade:
    """The request is admitted with a changed demand, which its caller is shown.

    Attributes:
        admit: The admission of the changed request.
        changes: What was changed, in the words of ``x-tokenweir-degraded``.
    """

    admit: Admit
    changes: tuple[str, ...]


Decision: TypeAlias = Admit | Enqueue | Degrade | Reject


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A queued request enters its replica now."""

    ticket_id: TicketId
    admit: Admit
    queue_wait_ns: Nanos


@dataclass(frozen=True, slots=True)
class Expire:
    """A queued request is dropped: its wait or its deadline is over."""

    ticket_id: TicketId
    reject: Reject
    queue_wait_ns: Nanos


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A reservation's owner did not renew it; its hold has been taken back."""

    reservation_id: ReservationId
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A running request gives way to a more urgent one: its engine must stop working on it.

    What has not given its client anything is put back (``Admitter.put_back``). What has is settled
    as ``Outcome.INTERRUPTED`` and its client told, where ``may_break``; else it is spared
    (``Admitter.spare``).
    """

    reservation_id: ReservationId
    replica: ReplicaId
    may_break: bool


@dataclass(frozen=True, slots=True)
class DriftAlarm:
    """Engine and ledger have disagreed by more than the bound for longer than the patience."""

    replica: ReplicaId
    drift_tokens: int


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """Background work pauses from now on, for this cause, or resumes where there is none."""

    cause: PauseCause | None


Effect: TypeAlias = Dispatch | Expire | Interrupt | LeaseLost | DriftAlarm | PauseChanged
