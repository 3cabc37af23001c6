"""What happened to one attempt?"""

from __future__ import annotations

from enum import Enum

from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import Nanos, ReplicaId
from tokenweir.sim.turns import FIRST_TURN, Turn

__all__ = ["Attempt", "Fate"]


class Fate(Enum):
    """How an attempt ended: FAILED with its engine; UNSERVED is still open when a run is cut."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    UNSERVED = "unserved"
    REFUSED = "refused"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    FAILED = "failed"


class Attempt:
    """One try of one unique request; times in ns from the start of the run."""

    __slots__ = (
        "arrive_ns",
        "declared_tokens",
        "end_ns",
        "fate",
        "first_ns",
        "found_tokens",
        "index",
        "interruptions",
        "is_dispatched",
        "number",
        "output_tokens",
        "prompt_tokens",
        "queue_wait_ns",
        "reason",
        "replica_id",
        "request_id",
        "spared_tokens",
        "turn",
    )

    def __init__(
        self,
        index: int,
        number: int,
        *,
        arrive_ns: Nanos,
        lengths: tuple[int, int, int],
        turn: Turn = FIRST_TURN,
    ) -> None:
        """Start open.

        Args:
            index: Of the unique request in the workload.
            number: 0 for the first try.
            arrive_ns: When it reached us.
            lengths: Prompt, true output and declared maximum, in tokens.
            turn: Where its client is in its loops.
        """
        self.index = index
        self.number = number
        self.turn = turn
        self.request_id = f"{index}.{number}"
        self.arrive_ns = arrive_ns
        self.prompt_tokens, self.output_tokens, self.declared_tokens = lengths
        self.fate = Fate.UNSERVED
        self.reason: ReasonCode | None = None
        self.is_dispatched = False
        self.interruptions = 0
        # Where it was sent, what of its prompt was taken to be cached there, and what was.
        self.replica_id = ReplicaId("")
        self.found_tokens = 0
        self.spared_tokens = 0
        self.queue_wait_ns: Nanos = 0
        self.first_ns: Nanos | None = None
        self.end_ns: Nanos | None = None

    def __repr__(self) -> str:
        """Show the fate in one line."""
        return f"Attempt({self.request_id} at {self.arrive_ns} ns: {self.fate.value})"
