"""What does the policy know about a request?

Values only: token counts, identity, class and deadline. Never the prompt's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from tokenweir.core.lengths.config import LengthMode
from tokenweir.core.units import Nanos

__all__ = ["PRIORITIES", "Outcome", "Priority", "Request", "ReturnTicket", "Usage"]


class Priority(IntEnum):
    """The four classes, most urgent first."""

    P0 = 0
    P1 = 1
    P2 = 2
    P3 = 3


# Iterating the class itself makes a generator each time.
PRIORITIES = tuple(Priority)


@dataclass(frozen=True, slots=True)
class ReturnTicket:
    """What a genuine ticket says: between which times its owner was told to come back."""

    serial: int
    opens_ns: Nanos
    closes_ns: Nanos


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt to have one unit of work done.

    Attributes:
        request_id: Unique among requests that are live or were a short while ago; reservation and
            ticket carry the same text.
        prompt_tokens: Tokens of the prompt, counted or estimated, at least 0.
        output_tokens_max: Declared output maximum after clamping to the route's, at least 1.
        tenant: Who pays; authenticated, never taken from a bare client header.
        priority: Class after clamping.
        deadline_ns: Latest useful instant for the first output, or None.
        attempt: 0 for a first try, 1 for the first retry.
        route: The route it came by; lengths are predicted per tenant and route.
        sequences: Answers generated from the one prompt, which share the output maximum.
        cached_prompt_tokens: Of the prompt, what the engine's prefix cache is expected to hold, so
            that it need not be read; at most all but one.
        counts_attempts: Whether its client tells the number of the attempt.
        body_hash: Of its body, the same for every attempt; empty where returns are not recognised.
        ticket: What it was given when it was refused before, its seal checked.
        length_mode: What is promised of its length instead of what its pool promises, for instance
            where its tenant pays for the declared maximum; None for the pool's.
        wait_ns_max: Longest wait that its caller or its tenant bears, 0 to enter at once or not at
            all; None for its class's, beyond which nothing waits in any case.
    """

    request_id: str
    prompt_tokens: int
    output_tokens_max: int
    tenant: str = "default"
    priority: Priority = Priority.P1
    deadline_ns: Nanos | None = None
    attempt: int = 0
    route: str = ""
    sequences: int = 1
    cached_prompt_tokens: int = 0
    counts_attempts: bool = False
    body_hash: bytes = b""
    ticket: ReturnTicket | None = None
    length_mode: LengthMode | None = None
    wait_ns_max: Nanos | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a finished request really used, as the engine counted it.

    Attributes:
        prompt_tokens: All of the prompt.
        output_tokens: Of all its answers.
        cached_tokens: Of the prompt, what the engine had in its cache and did not read; None where
            it does not say.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None

    @property
    def tokens(self) -> int:
        """Prompt and output tokens together."""
        return self.prompt_tokens + self.output_tokens


class Outcome(Enum):
    """How a dispatched request ended; only the first two saw the model's own end or its limit."""

    FINISHED = "finished"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    INTERRUPTED = "interrupted"

    @property
    def is_early(self) -> bool:
        """Whether the engine may still hold the request's KV for a moment after this end."""
        return self in _EARLY


_EARLY = (Outcome.CANCELLED, Outcome.ERROR, Outcome.INTERRUPTED)
