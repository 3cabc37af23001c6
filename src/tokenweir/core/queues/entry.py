"""What is known of one waiting request?"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.cost import Estimate
from tokenweir.core.request import Priority, Request
from tokenweir.core.units import Nanos, TicketId

__all__ = ["Key", "QueueEntry"]

# Smallest first: who was told to come back now, then by ordering, then by arrival.
Key = tuple[bool, float, int]


@dataclass(slots=True)
class QueueEntry:
    """One waiting request; band and key are the queue's to set.

    Attributes:
        ticket_id: Unique in the queue.
        request: What waits.
        estimate: What it will take.
        enqueued_ns: When it came, or so long before now as it has waited.
        expires_ns: When it is dropped at the latest.
        due_ns: When it must have begun to be answered, by which earliest-deadline orders.
        size_tokens: Its expected tokens, by which cheapest-first orders; 0 where nobody asks.
        is_returning: It was told to come back now, and is preferred to its tenant's other requests.
        arrived_ns: When its request came first, by which fifo orders; earlier than ``enqueued_ns``
            only where it was put back.
        interruptions: How often it was put back.
        is_pressing: It would have been refused, and waits for somebody to be interrupted.
        promised_ns: When it was to start as it was first passed, None while it was not.
        band: The class it waits in: its own, or a better one after promotion.
        key: Its place in its tenant's line.
    """

    ticket_id: TicketId
    request: Request
    estimate: Estimate
    enqueued_ns: Nanos
    expires_ns: Nanos
    due_ns: Nanos = 0
    size_tokens: float = 0.0
    is_returning: bool = False
    arrived_ns: Nanos | None = None
    interruptions: int = 0
    is_pressing: bool = False
    promised_ns: Nanos | None = None
    band: Priority = Priority.P1
    key: Key = (True, 0.0, 0)

    @property
    def first_ns(self) -> Nanos:
        """When its request came first."""
        return self.enqueued_ns if self.arrived_ns is None else self.arrived_ns
