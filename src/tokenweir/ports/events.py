"""Who wants to know what was decided and how it ended?"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from tokenweir.core.ledger import Settlement
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import Nanos, ReplicaId

__all__ = ["EventSink", "UpstreamFault", "Verdict"]


class Verdict(Enum):
    """How a request was answered, in the words of ``x-tokenweir-decision``."""

    ADMIT = "admit"
    QUEUE = "queue"
    DEGRADE = "degrade"
    REJECT = "reject"


class UpstreamFault(Enum):
    """What an upstream did wrong."""

    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    BUSY = "busy"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"


class EventSink(Protocol):
    """Counts events; called inside critical sections, so it returns at once and never raises."""

    def decided(self, verdict: Verdict, reason: ReasonCode) -> None:
        """Take in how a request was answered; a queued one when it left the queue."""
        ...

    def observed_only(self, reason: ReasonCode) -> None:
        """Take in a refusal that observe mode did not carry out."""
        ...

    def waited(self, queue_wait_ns: Nanos) -> None:
        """Take in how long a request was queued."""
        ...

    def first_token(self, ttft_ns: Nanos) -> None:
        """Take in how long after its arrival a request's first output came."""
        ...

    def prompt_counted(self, estimated_tokens: int, *, counted_tokens: int) -> None:
        """Take in what an engine counted of a prompt that was estimated."""
        ...

    def settled(self, settlement: Settlement) -> None:
        """Take in the end of a reservation."""
        ...

    def interrupted(self, *, was_begun: bool) -> None:
        """Take in that a running request gave way, and whether its client had got anything."""
        ...

    def lease_lost(self, replica: ReplicaId) -> None:
        """Take in that a hold was taken back because nobody renewed it."""
        ...

    def drift_alarm(self, replica: ReplicaId) -> None:
        """Take in that engine and ledger disagree for too long."""
        ...

    def upstream_fault(self, replica: ReplicaId, fault: UpstreamFault) -> None:
        """Take in that an upstream failed."""
        ...
