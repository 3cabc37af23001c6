"""What does a client do when it is refused, or when nothing comes?

A refused client tries again or gives up; one that waits longer than its timeout for the first token
leaves, and then tries again or gives up too. Chance comes from the ``clients`` stream by request
and attempt, so a client behaves the same whatever the policy answered others. What the common
libraries do stands in ``sim/sdks.py``; the rows here are simpler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenweir.core.decision import Reject
from tokenweir.core.errors import ConfigError
from tokenweir.core.retry import RETRY_AFTER_NS_MAX
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.sim.sdks import SDKS, SdkClients
from tokenweir.sim.turns import Clients, Comeback, Turn

__all__ = [
    "RETRIES",
    "RETRIES_MAX",
    "RETRY_NAMES",
    "ClientModel",
    "article_clients",
    "client_model",
]

# More would be a client that never gives up, and a run that never ends.
RETRIES_MAX = 20

_EXPONENTIAL_NS_MAX = 60 * NS_PER_S

# (attempt that failed, counted from 0; advice or None) -> delay
DelayRule = Callable[[int, Nanos | None], Nanos]


def _fixed(attempt: int, retry_after_ns: Nanos | None) -> Nanos:
    return NS_PER_S


def _exponential(attempt: int, retry_after_ns: Nanos | None) -> Nanos:
    return min((200 * NS_PER_MS) << attempt, _EXPONENTIAL_NS_MAX)


def _obeying(attempt: int, retry_after_ns: Nanos | None) -> Nanos:
    """Obey the advice; without one, back off as the common SDKs do."""
    return retry_after_ns or min((500 * NS_PER_MS) << attempt, 8 * NS_PER_S)


RETRIES: dict[str, DelayRule | None] = {
    "none": None,
    "fixed": _fixed,
    "exponential": _exponential,
    "obey": _obeying,
}

# The mix of all libraries, by their shares.
_MIX = "sdks"
RETRY_NAMES = (*RETRIES, _MIX, *SDKS)


@dataclass(frozen=True, slots=True)
class ClientModel:
    """How clients of one run behave.

    Attributes:
        delay: Delay before the next attempt, or None for clients that never retry.
        retries_max: Attempts after the first.
        retry_probability: Chance that a client that could retry does, 0 to 1.
        timeout_ns: Longest wait for the first token, or None.
        stops_when_told: Whether a refusal without advice ends the client's attempts.
    """

    delay: DelayRule | None = None
    retries_max: int = 0
    retry_probability: float = 1.0
    timeout_ns: Nanos | None = None
    stops_when_told: bool = False

    @property
    def draws_max(self) -> int:
        """Draws that one unique request's client may need."""
        return max(1, self.retries_max)

    def counts_attempts(self, draws: Sequence[float]) -> bool:
        """Tell whether the client tells the number of its attempt: these do."""
        return True

    def comeback(
        self,
        turn: Turn,
        number: int,
        *,
        draws: Sequence[float],
        reject: Reject | None,
        age_ns: Nanos,
    ) -> Comeback | None:
        """Return when a client comes back, or None where it gives up; see ``Clients``."""
        if number >= self.retries_max or (reject is not None and not reject.row.is_retryable):
            return None
        delay_ns = self.retry_delay_ns(
            number,
            draw=draws[number],
            advice_ns=None if reject is None else reject.retry_after_ns,
            is_refused=reject is not None,
        )
        return None if delay_ns is None else Comeback(delay_ns, Turn(0, number + 1))

    def longest_delays_ns(self) -> Sequence[Nanos]:
        """Return the longest delay before each retry, advised or not."""
        longest = []
        for number in range(self.retries_max):
            delays = [
                self.retry_delay_ns(number, draw=0.0, advice_ns=advice_ns, is_refused=is_refused)
                for advice_ns, is_refused in (
                    (None, True),
                    (RETRY_AFTER_NS_MAX, True),
                    (None, False),
                )
            ]
            known = [delay for delay in delays if delay is not None]
            if not known:
                break
            longest.append(max(known))
        return longest

    def retry_delay_ns(
        self, attempt: int, *, draw: float, advice_ns: Nanos | None, is_refused: bool
    ) -> Nanos | None:
        """Return when the client tries again, from now, or None where it gives up.

        Args:
            attempt: The one that failed, from 0.
            draw: Uniform, this client's and attempt's own.
            advice_ns: Retry-After of the refusal, if any.
            is_refused: Refused, as against timed out.
        """
        if self.delay is None or attempt >= self.retries_max or draw >= self.retry_probability:
            return None
        if self.stops_when_told and is_refused and advice_ns is None:
            return None
        return self.delay(attempt, advice_ns)


def article_clients() -> ClientModel:
    """Return the retry storm's clients: with probability 0.8 after 0.2, 0.4 and 0.8 s."""
    return ClientModel(delay=_exponential, retries_max=3, retry_probability=0.8)


def client_model(retry: str, *, retries_max: int, timeout_ns: Nanos | None) -> Clients:
    """Build clients of one row of ``RETRY_NAMES``; libraries have their own number of retries.

    Raises:
        ConfigError: No such row, or too many retries.
    """
    if not 0 <= retries_max <= RETRIES_MAX:
        raise ConfigError(f"--retries {retries_max} is not allowed, allowed: 0 to {RETRIES_MAX}")
    if retry == _MIX:
        return SdkClients(tuple(SDKS.values()), timeout_ns=timeout_ns)
    if retry in SDKS:
        return SdkClients((SDKS[retry],), timeout_ns=timeout_ns)
    if retry not in RETRIES:
        raise ConfigError(f"unknown client retry {retry!r}, allowed: {', '.join(RETRY_NAMES)}")
    return ClientModel(
        delay=RETRIES[retry],
        retries_max=retries_max,
        timeout_ns=timeout_ns,
        stops_when_told=retry == "obey",
    )
