"""Which units does the policy count in, and how are they converted?

Time is an int of monotonic nanoseconds, tokens and credits are ints. Seconds exist only in
settings and on the wire; they are converted here, once, at the edge.
"""

from __future__ import annotations

from typing import NewType, TypeAlias

__all__ = [
    "NS_PER_MS",
    "NS_PER_S",
    "Nanos",
    "ReplicaId",
    "ReservationId",
    "TicketId",
    "div_ceil",
    "ns_from_s",
    "s_from_ns",
]

Nanos: TypeAlias = int

ReservationId = NewType("ReservationId", str)
TicketId = NewType("TicketId", str)
ReplicaId = NewType("ReplicaId", str)

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def ns_from_s(seconds: float) -> Nanos:
    """Convert seconds to nanoseconds, to the nearest."""
    return round(seconds * NS_PER_S)


def s_from_ns(nanos: Nanos) -> float:
    """Convert nanoseconds to seconds."""
    return nanos / NS_PER_S


def div_ceil(numerator: int, denominator: int) -> int:
    """Divide two ints and round up, which is against whoever asks for something.

    Raises:
        ZeroDivisionError: The denominator is 0.
    """
    return -(-numerator // denominator)
