"""Which states does a reservation pass, and what moves it?

The life cycle is the table ``TRANSITIONS``; what is not in it is a ``ContractError`` and changes
nothing.

    RESERVED --first_token--> STREAMING
    RESERVED, STREAMING --settle--> SETTLED
    RESERVED, STREAMING --settle_early--> DRAINING --drained--> SETTLED
    RESERVED --release--> RELEASED
    RESERVED, STREAMING --lease_lost--> EXPIRED --settle(_early)--> SETTLED_LATE
"""

from __future__ import annotations

from enum import Enum

from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ContractError
from tokenweir.core.units import Nanos, ReplicaId, ReservationId

__all__ = ["HOLDING", "TRANSITIONS", "Event", "Reservation", "State"]


class State(Enum):
    """Where a reservation is in its life."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    RESERVED = "reserved"
    STREAMING = "streaming"
    DRAINING = "draining"
    SETTLED = "settled"
    RELEASED = "released"
    EXPIRED = "expired"
    SETTLED_LATE = "settled_late"


class Event(Enum):
    """What can happen to a reservation."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    FIRST_TOKEN = "first_token"
    SETTLE = "settle"
    SETTLE_EARLY = "settle_early"
    DRAINED = "drained"
    RELEASE = "release"
    LEASE_LOST = "lease_lost"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.RESERVED, Event.FIRST_TOKEN): State.STREAMING,
    (State.RESERVED, Event.SETTLE): State.SETTLED,
    (State.RESERVED, Event.SETTLE_EARLY): State.DRAINING,
    (State.RESERVED, Event.RELEASE): State.RELEASED,
    (State.RESERVED, Event.LEASE_LOST): State.EXPIRED,
    (State.STREAMING, Event.SETTLE): State.SETTLED,
    (State.STREAMING, Event.SETTLE_EARLY): State.DRAINING,
    (State.STREAMING, Event.LEASE_LOST): State.EXPIRED,
    (State.DRAINING, Event.DRAINED): State.SETTLED,
    (State.EXPIRED, Event.SETTLE): State.SETTLED_LATE,
    (State.EXPIRED, Event.SETTLE_EARLY): State.SETTLED_LATE,
}

# In these states the reservation counts against its replica's permits and tokens.
HOLDING = frozenset({State.RESERVED, State.STREAMING})


class Reservation:
    """A hold on one replica's capacity for one request; owned by the ledger, mutable there only."""

    __slots__ = (
        "estimate",
        "held_tokens",
        "is_guess",
        "is_prefilling",
        "lease_expires_ns",
        "pace_due_ns",
        "paced_ns",
        "paced_tokens",
        "predicted_first_ns",
        "replica",
        "reservation_id",
        "start_ns",
        "state",
    )

    def __init__(
        self,
        reservation_id: ReservationId,
        replica: ReplicaId,
        *,
        estimate: Estimate,
        start_ns: Nanos,
        lease_expires_ns: Nanos,
        is_guess: bool = False,
    ) -> None:
        """Open a hold in state ``RESERVED``."""
        self.reservation_id = reservation_id
        self.replica = replica
        self.estimate = estimate
        # Made before anything was known: its error says nothing of predictions.
        self.is_guess = is_guess
        self.held_tokens = estimate.prompt_tokens
        self.is_prefilling = True
        self.start_ns = start_ns
        # What the profile said of its first token when it was sent, 0 where nobody knows.
        self.predicted_first_ns: Nanos = 0
        # From when and from how many held tokens on its pace counts, and when it is next taken;
        # None before its first token.
        self.paced_ns: Nanos | None = None
        self.paced_tokens = 0
        self.pace_due_ns: Nanos = start_ns
        self.lease_expires_ns = lease_expires_ns
        self.state = State.RESERVED

    def move(self, event: Event) -> None:
        """Follow one row of ``TRANSITIONS``.

        Raises:
            ContractError: The event is not legal in this state; the state is unchanged.
        """
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            raise ContractError(
                f"reservation {self.reservation_id} is {self.state.value}, "
                f"so {event.value} is not possible"
            )
        self.state = target

    def __repr__(self) -> str:
        """Show the state in one line, never the prompt."""
        return (
            f"Reservation({self.reservation_id} on {self.replica}: {self.state.value}, "
            f"reserved {self.estimate.tokens}, held {self.held_tokens})"
        )
