"""How do the common client libraries retry?

Model: a library has an inner loop, whose attempts it may number on the wire, and perhaps an outer
one around it. Each row says which advice it reads, how far it obeys it, and what it does without.
Rule: a delay that is read is obeyed as it is, for none of them adds jitter to it; beyond the row's
cap it gives up, or falls back to its own delay. An outer loop begins where the inner one ends.
Trade-off: shares of the mix are an assumption: most traffic from the official libraries at their
defaults, a few percent from wrappers that multiply attempts. No row sends a ticket back.
Source: the libraries' sources at the versions named, and their observed behaviour against a server
that always refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

from tokenweir.core.decision import Reject
from tokenweir.core.retry import RETRY_AFTER_NS_MAX
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, div_ceil
from tokenweir.sim.turns import Comeback, Turn

__all__ = ["SDKS", "Sdk", "SdkClients"]

# (retry of the loop from 0, uniform draw) -> delay without advice
Backoff = Callable[[int, float], Nanos]

_ANY_NS: Nanos = (1 << 31) * NS_PER_MS
# What a connection takes at the least, for those that come back at once.
_ROUND_TRIP_NS = 2 * NS_PER_MS


def _stainless(retry: int, draw: float) -> Nanos:
    """Half a second, doubled up to 8 s, less up to a quarter."""
    full_ns = min((500 * NS_PER_MS) << retry, 8 * NS_PER_S)
    return int(full_ns * (1.0 - 0.25 * draw))


def _tenacity_jitter(retry: int, draw: float) -> Nanos:
    """One second, doubled up to a minute, and up to a second more."""
    return min(NS_PER_S << retry, 60 * NS_PER_S) + int(NS_PER_S * draw)


def _tenacity_random(retry: int, draw: float) -> Nanos:
    """Anything from one second to one that doubles, up to 20 s."""
    high_ns = min(NS_PER_S << retry, 20 * NS_PER_S)
    return NS_PER_S + int((high_ns - NS_PER_S) * draw)


def _at_once(retry: int, draw: float) -> Nanos:
    return _ROUND_TRIP_NS


@dataclass(frozen=True, slots=True)
class Sdk:
    """One library.

    Attributes:
        name: Package and version.
        share: Of the clients in the mix, above 0.
        retries_max: Of the inner loop.
        obeys_ns_max: Longest advice that the inner loop obeys; 0 where it reads none.
        gives_up_beyond: Whether longer advice ends it; else it falls back to its own delay.
        reads_ms: Whether it reads the exact header, else whole seconds, rounded up.
        heeds_should_retry: Whether ``x-should-retry`` decides for the inner loop.
        counts_attempts: Whether it numbers the attempts of the inner loop on the wire.
        backoff: Delay of the inner loop without advice.
        rounds_max: How often the outer loop, if any, runs the inner one.
        outer_obeys_ns_max: Longest advice in whole seconds that the outer loop obeys, which caps
            what is longer; 0 where it reads none.
        outer_backoff: Delay of the outer loop without advice.
        outer_ends_ns: Since the first attempt, when the outer loop gives up; 0 for never.
    """

    name: str
    share: float
    retries_max: int = 2
    obeys_ns_max: Nanos = 120 * NS_PER_S
    gives_up_beyond: bool = False
    reads_ms: bool = True
    heeds_should_retry: bool = True
    counts_attempts: bool = True
    backoff: Backoff = _stainless
    rounds_max: int = 1
    outer_obeys_ns_max: Nanos = 0
    outer_backoff: Backoff = _tenacity_jitter
    outer_ends_ns: Nanos = 0

    @property
    def attempts_max(self) -> int:
        """Requests that one call can become."""
        return (self.retries_max + 1) * self.rounds_max

    def longest_delays_ns(self) -> list[Nanos]:
        """Return the longest delay before each retry, advised or not."""
        inner = [
            max(min(self.obeys_ns_max, RETRY_AFTER_NS_MAX), self.backoff(retry, 0.0))
            for retry in range(self.retries_max)
        ]
        delays = list(inner)
        for outer in range(self.rounds_max - 1):
            advised_ns = min(self.outer_obeys_ns_max, RETRY_AFTER_NS_MAX)
            delays += [max(advised_ns, self.outer_backoff(outer, 1.0)), *inner]
        return delays

    def comeback(
        self, turn: Turn, *, draw: float, reject: Reject | None, age_ns: Nanos
    ) -> Comeback | None:
        """Return when and as what it comes back, or None where it gives up.

        Args:
            turn: The attempt that failed.
            draw: Uniform, of this attempt.
            reject: The refusal, or None where nothing came in time.
            age_ns: Since the first attempt.
        """
        inner_ns = self._inner_delay_ns(turn, draw=draw, reject=reject)
        if inner_ns is not None:
            return Comeback(inner_ns, Turn(turn.round, turn.retry + 1))
        if turn.round + 1 >= self.rounds_max:
            return None
        if 0 < self.outer_ends_ns <= age_ns:
            return None
        delay_ns = self.outer_backoff(turn.round, draw)
        if reject is not None and reject.advised_ns is not None and self.outer_obeys_ns_max:
            delay_ns = min(_whole_seconds(reject.advised_ns), self.outer_obeys_ns_max)
        return Comeback(delay_ns, Turn(turn.round + 1, 0))

    def _inner_delay_ns(self, turn: Turn, *, draw: float, reject: Reject | None) -> Nanos | None:
        if turn.retry >= self.retries_max:
            return None
        advised_ns = None if reject is None else reject.advised_ns
        if advised_ns is not None and self.gives_up_beyond and advised_ns > self.obeys_ns_max:
            return None
        if reject is not None and self.heeds_should_retry and advised_ns is None:
            return None
        if advised_ns is not None and not self.reads_ms:
            advised_ns = _whole_seconds(advised_ns)
        if advised_ns is not None and advised_ns <= self.obeys_ns_max:
            return advised_ns
        return self.backoff(turn.retry, draw)


def _whole_seconds(delay_ns: Nanos) -> Nanos:
    return div_ceil(delay_ns, NS_PER_S) * NS_PER_S


_ROWS = (
    Sdk("openai-python-3", 0.35, gives_up_beyond=True),
    Sdk("openai-python-1.99", 0.12, obeys_ns_max=60 * NS_PER_S),
    Sdk("anthropic-python", 0.10, obeys_ns_max=_ANY_NS),
    Sdk("openai-npm-6", 0.12, obeys_ns_max=_ANY_NS),
    Sdk("openai-npm-7", 0.12, obeys_ns_max=60 * NS_PER_S),
    Sdk("anthropic-npm", 0.05, obeys_ns_max=_ANY_NS),
    # ``with_retry`` of two attempts around a library with two retries: six requests.
    Sdk("langchain-with-retry", 0.05, gives_up_beyond=True, rounds_max=2),
    # Three times four requests.
    Sdk(
        "llamaindex",
        0.04,
        retries_max=3,
        gives_up_beyond=True,
        rounds_max=3,
        outer_obeys_ns_max=120 * NS_PER_S,
        outer_backoff=_tenacity_random,
        outer_ends_ns=60 * NS_PER_S,
    ),
    # Set to retry POST, which it does not by default.
    Sdk(
        "httpx-retries",
        0.01,
        retries_max=10,
        reads_ms=False,
        heeds_should_retry=False,
        counts_attempts=False,
        backoff=_at_once,
    ),
    # Bare HTTP clients, and libraries told not to retry.
    Sdk("no-retry", 0.04, retries_max=0, counts_attempts=False),
)

SDKS: dict[str, Sdk] = {row.name: row for row in _ROWS}


class SdkClients:
    """Clients that use one library, or each its own by the shares of a mix."""

    def __init__(self, sdks: Sequence[Sdk], *, timeout_ns: Nanos | None = None) -> None:
        """Choose by the shares of the given rows.

        Args:
            sdks: One or more, kept.
            timeout_ns: Longest wait for the first token, or None: the libraries wait 600 s.
        """
        self.timeout_ns = timeout_ns
        self._sdks = tuple(sdks)
        self._edges = tuple(accumulate(sdk.share for sdk in sdks))
        # The first draw chooses the library.
        self.draws_max = 1 + max(sdk.attempts_max for sdk in sdks)

    def counts_attempts(self, draws: Sequence[float]) -> bool:
        """Tell whether this client numbers its attempts."""
        return self._sdk(draws).counts_attempts

    def comeback(
        self,
        turn: Turn,
        number: int,
        *,
        draws: Sequence[float],
        reject: Reject | None,
        age_ns: Nanos,
    ) -> Comeback | None:
        """Return when and as what this client comes back, or None; see ``Sdk.comeback``."""
        if reject is not None and not reject.row.is_retryable:
            return None
        draw = draws[1 + number]
        return self._sdk(draws).comeback(turn, draw=draw, reject=reject, age_ns=age_ns)

    def longest_delays_ns(self) -> list[Nanos]:
        """Return the longest delay of any of the libraries before each retry."""
        columns = zip_longest(*(sdk.longest_delays_ns() for sdk in self._sdks), fillvalue=0)
        return [max(column) for column in columns]

    def _sdk(self, draws: Sequence[float]) -> Sdk:
        point = draws[0] * self._edges[-1]
        for sdk, edge in zip(self._sdks, self._edges, strict=True):
            if point < edge:
                return sdk
        return self._sdks[-1]
