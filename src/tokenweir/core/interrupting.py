"""Whom does an urgent request interrupt that would be refused otherwise?

Model: running requests of classes that may be interrupted (see ``classes``), each with what would
have to be done again: the tokens it holds.
Rule: a request of an interactive class that is next and does not fit interrupts others of classes
below it if it would have been refused, or when half of its wait is over. Taken are, on the replica
where least is lost, the lowest class first, in it those that lose least, the youngest first; so
many that it fits once their KV has drained, none whom it would fit without, and at most 8: where
more would have to go, nobody goes. What drains anyway is waited for. Spared is who was interrupted
before, who has waited half of what its class may, and who named a deadline.
Properties: INV-INTERRUPT-1 (a request is interrupted once at most, so each comes to its end), and
nothing is interrupted in vain, as far as predictions are right.
Trade-off: work that is done twice. What was interrupted before its first byte goes back to its
place in the queue, as old as it is, and nobody but the engine has lost anything.
"""

from __future__ import annotations

from tokenweir.core.account import Account
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.capacity import Shortage
from tokenweir.core.classes import Interruptible
from tokenweir.core.decision import Interrupt
from tokenweir.core.entrance import Entrance
from tokenweir.core.ledger import Ledger
from tokenweir.core.open_requests import OpenRequest, OpenRequests
from tokenweir.core.queues import Ahead, Head, QueueEntry, QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority, Request
from tokenweir.core.reservation import Reservation, State
from tokenweir.core.units import Nanos, TicketId

__all__ = ["Interrupting", "entry_again"]

_VICTIMS_MAX = 8
# What can be told at arrival to become free by ends; prompts that are being read are looked at when
# their turn is over.
_FREED_BY_ENDS = frozenset({
    ReasonCode.OVERLOAD_KV,
    ReasonCode.OVERLOAD_CONCURRENCY,
    ReasonCode.OVERLOAD_GATE,
    ReasonCode.OVERLOAD_PACE,
})


class Interrupting:
    """Who gives way in one pool."""

    def __init__(
        self, config: AdmitterConfig, *, ledger: Ledger, opened: OpenRequests, entrance: Entrance
    ) -> None:
        """Take over nothing: ledger, open requests and entrance are read only.

        Args:
            config: What classes there are.
            ledger: What is open.
            opened: Whose it is.
            entrance: What fits.
        """
        self._limits = config.queue
        self._classes = config.queue.classes
        self._ledger = ledger
        self._opened = opened
        self._entrance = entrance
        # By who asks: the classes that give way to it.
        self._below = {
            priority: tuple(
                below
                for below in Priority
                if below > priority
                and self._classes[priority].is_interactive
                and self._classes[below].interruptible is not Interruptible.NEVER
            )
            for priority in Priority
        }

    @property
    def time_ns(self) -> Nanos:
        """How long it takes until there is room."""
        return self._ledger.interrupt_time_ns

    def has_any(self, priority: Priority) -> bool:
        """Tell whether anything runs that could give way to a class. Cost O(classes)."""
        return any(self._opened.of_class(below) for below in self._below[priority])

    def could_help(self, request: Request, shortage: Shortage, *, ahead: Ahead) -> bool:
        """Tell whether what could give way on a replica makes up for what a newcomer waits for."""
        if shortage.reason not in _FREED_BY_ENDS or not self.has_any(request.priority):
            return False
        needed = shortage.missing_tokens + ahead.debt_tokens
        for account in self._entrance.accounts:
            if account.is_healthy:
                candidates = self._candidates(account, request.priority)
                sizes = sorted((r.estimate.tokens for r in candidates), reverse=True)
                if needed <= sum(sizes[:_VICTIMS_MAX]):
                    return True
        return False

    def due_ns(self, head: Head) -> Nanos | None:
        """Return from when on who is next and does not fit may interrupt others, or None."""
        entry = head.entry
        if not self.has_any(entry.request.priority):
            return None
        if entry.is_pressing:
            return entry.enqueued_ns
        return entry.enqueued_ns + (entry.expires_ns - entry.enqueued_ns) // 2

    def victims(self, head: Head, *, now_ns: Nanos) -> list[Interrupt]:
        """Return whom who is next interrupts now, and note that they are; see the rule."""
        due_ns = self.due_ns(head)
        if due_ns is None or now_ns < due_ns:
            return []
        best: list[Reservation] | None = None
        for account in self._entrance.accounts:
            if not account.is_healthy:
                continue
            chosen = self._chosen(head, account, now_ns=now_ns)
            if chosen is None:
                continue
            if not chosen:
                # It fits as soon as what drains is gone.
                return []
            if best is None or _lost_tokens(chosen) < _lost_tokens(best):
                best = chosen
        return [self._interrupt(reservation) for reservation in best or ()]

    def _chosen(self, head: Head, account: Account, *, now_ns: Nanos) -> list[Reservation] | None:
        """Return who would have to leave a replica, or None where that does not help."""
        trial = self._trial(account, now_ns=now_ns)
        chosen: list[Reservation] = []
        candidates = iter(self._candidates(account, head.entry.request.priority))
        while not self._fits(head, trial, now_ns=now_ns):
            reservation = next(candidates, None)
            if reservation is None or len(chosen) == _VICTIMS_MAX:
                return None
            trial.take_out(reservation, now_ns=now_ns)
            chosen.append(reservation)
        # The last one made it fit; of those before it, the dearest may not be needed any more.
        for spared in reversed(chosen[:-1]):
            rest = [reservation for reservation in chosen if reservation is not spared]
            trial = self._trial(account, now_ns=now_ns)
            for reservation in rest:
                trial.take_out(reservation, now_ns=now_ns)
            if self._fits(head, trial, now_ns=now_ns):
                chosen = rest
        return chosen

    def _trial(self, account: Account, *, now_ns: Nanos) -> Account:
        """Return what a replica will be when what drains soon is gone."""
        trial = account.copy()
        then_ns = now_ns + self._ledger.interrupt_time_ns
        trial.draining_tokens -= self._ledger.drained_by(account.replica, then_ns=then_ns)
        return trial

    def _fits(self, head: Head, trial: Account, *, now_ns: Nanos) -> bool:
        entry = head.entry
        placed = self._entrance.place(
            entry.estimate, head.admitted_as, tenant=entry.request.tenant, now_ns=now_ns, on=trial
        )
        return isinstance(placed, Account)

    def _candidates(self, account: Account, priority: Priority) -> list[Reservation]:
        """Return who may give way to a class on a replica, in the order of the rule."""
        below = self._below[priority]
        found = []
        for reservation in self._ledger.open_on(account.replica):
            opened = self._opened.get(reservation.reservation_id)
            if opened is not None and self._may_go(opened, reservation, below=below):
                key = (-opened.request.priority, reservation.held_tokens, -reservation.start_ns)
                found.append((key, reservation))
        return [reservation for _, reservation in sorted(found, key=lambda row: row[0])]

    def _may_go(
        self, opened: OpenRequest, reservation: Reservation, *, below: tuple[Priority, ...]
    ) -> bool:
        request, priority = opened.request, opened.request.priority
        if priority not in below or opened.interruptions or opened.is_interrupted:
            return False
        if opened.is_spared or request.deadline_ns is not None:
            return False
        if 2 * opened.waited_ns >= self._limits.longest_wait_ns(request):
            return False
        return (
            self._classes[priority].interruptible is Interruptible.ALWAYS
            or reservation.state is State.RESERVED
        )

    def _interrupt(self, reservation: Reservation) -> Interrupt:
        opened = self._opened.get(reservation.reservation_id)
        assert opened is not None
        opened.is_interrupted = True
        row = self._classes[opened.request.priority]
        return Interrupt(
            reservation.reservation_id,
            reservation.replica,
            may_break=row.interruptible is Interruptible.ALWAYS,
        )


def entry_again(
    opened: OpenRequest, *, limits: QueueLimits, size_tokens: float, now_ns: Nanos
) -> QueueEntry:
    """Return the place of a request that is put back: the time in the engine is no wait.

    Args:
        opened: What was running; it named no deadline.
        limits: Of the queue.
        size_tokens: See ``QueueEntry``.
        now_ns: Monotonic time.
    """
    request = opened.request
    enqueued_ns = now_ns - opened.waited_ns
    return QueueEntry(
        TicketId(request.request_id),
        request,
        opened.estimate,
        enqueued_ns=enqueued_ns,
        expires_ns=enqueued_ns + limits.longest_wait_ns(request),
        due_ns=opened.due_ns,
        size_tokens=size_tokens,
        arrived_ns=opened.arrived_ns,
        interruptions=opened.interruptions + 1,
    )


def _lost_tokens(chosen: list[Reservation]) -> int:
    return sum(reservation.held_tokens for reservation in chosen)
