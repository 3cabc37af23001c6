"""Where is a client in its loops of attempts?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tokenweir.core.decision import Reject
from tokenweir.core.units import Nanos

__all__ = ["FIRST_TURN", "Clients", "Comeback", "Turn"]


class Turn(NamedTuple):
    """Which attempt: the round of an outer loop, and the retry of the inner one, both from 0."""

    round: int
    retry: int


FIRST_TURN = Turn(0, 0)


@dataclass(frozen=True, slots=True)
class Comeback:
    """A client comes back after a delay."""

    delay_ns: Nanos
    turn: Turn


class Clients(Protocol):
    """How the clients of a run behave."""

    @property
    def timeout_ns(self) -> Nanos | None:
        """Longest wait for the first token, or None."""
        ...

    @property
    def draws_max(self) -> int:
        """Uniform draws that one unique request's client may need."""
        ...

    def counts_attempts(self, draws: Sequence[float]) -> bool:
        """Tell whether this client tells the number of its attempt."""
        ...

    def comeback(
        self,
        turn: Turn,
        number: int,
        *,
        draws: Sequence[float],
        reject: Reject | None,
        age_ns: Nanos,
    ) -> Comeback | None:
        """Return when and as what a client comes back, or None where it gives up.

        Args:
            turn: The attempt that failed.
            number: Attempts before it, over all rounds.
            draws: Uniform, this client's own.
            reject: The refusal, or None where nothing came in time.
            age_ns: Since the first attempt.
        """
        ...

    def longest_delays_ns(self) -> Sequence[Nanos]:
        """Return the longest delay that a client takes before each of its retries."""
        ...
