"""May a request wait, that is, will it make its bounds and let the others make theirs?

Model: W = time until what is ahead of it has been served: from the service rate, and where engines'
profiles are known from reading times; S = bound on its first token; r = time to read its prompt.
Rule: it may wait while W <= f S - max(r, m), with f = the part of it that may be used and m = the
95th percentile of r among those that ask; while W <= g f S, or that less r, with g = the part that
a standing queue leaves; and while nobody behind it in its tenant's line, who would be in time
without it, would be late with it. It is dropped at f S - r, or when its class's wait, a shorter one
of its own, or its deadline is over. Where prompts are what the engine is short of, the service rate
says nothing: it counts what ends, not what begins.
Properties: m makes the bound the same for all but the longest prompts. With r alone, a queue that
is full to the bound lets in whoever is a little smaller, and the engine gets none but small
requests. That matters where seats are short, which small requests take as large ones do; while few
are refused, or tokens are what is short, m is let go in proportion. Cheapest-first wants small
requests and lets newcomers pass: it keeps neither m nor the promise to those behind.
Trade-off: what is refused might have been served, were a prediction wrong; it is told at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenweir.core.account import Account
from tokenweir.core.capacity import Shortage
from tokenweir.core.first_token import first_token_slo_ns, own_reading_ns, reading_share_ns
from tokenweir.core.queues import Ahead, PoolQueue, QueueEntry, QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.retry import expected_wait_ns
from tokenweir.core.units import Nanos

__all__ = ["PoolLook", "Prospect", "WaitTest"]

# Of the moving percentile: a step up for each that is over it, 1/19 of that down for the others.
_STEP = 0.1
_QUANTILE = 0.95
# The share that is refused is a mean over so many arrivals; from this share on all of m is kept.
_ARRIVALS = 200
_REFUSED_FRACTION_FULL = 0.2
# The same for the share of waits that begin for want of a seat.
_SEATS_FRACTION_FULL = 0.3
# More of the bound than this is not kept, however long prompts are.
_MARGIN_FRACTION_MAX = 0.5


@dataclass(frozen=True, slots=True)
class PoolLook:
    """What a wait is predicted from, beside the queue.

    Attributes:
        healthy: Accounts of the healthy replicas.
        rate_tokens_per_s: Of service, None while nothing is known.
        shortage: Why what is next cannot enter now.
    """

    healthy: Sequence[Account]
    rate_tokens_per_s: float | None
    shortage: Shortage

    def wait_ns(self, ahead: Ahead) -> Nanos:
        """Predict how long until what is ahead and what is missing has been served."""
        return expected_wait_ns(
            int(ahead.debt_tokens) + self.shortage.missing_tokens,
            rate_tokens_per_s=self.rate_tokens_per_s,
            reserved_tokens=sum(account.reserved_tokens for account in self.healthy),
        )


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a request can expect of waiting.

    Attributes:
        ahead: What is served before it.
        wait_ns: Predicted, also where it rests on an assumed rate only.
        is_in_time: Whether it makes its bound, and those behind it theirs.
        is_before_deadline: Whether it makes the deadline that it named.
    """

    ahead: Ahead
    wait_ns: Nanos
    is_in_time: bool
    is_before_deadline: bool


class WaitTest:
    """Predicts waits; remembers how long prompts take to read."""

    def __init__(self, limits: QueueLimits, *, is_guarded: bool, prefers_small: bool) -> None:
        """Start knowing no prompt.

        Args:
            limits: Bounds of the queue.
            is_guarded: Whether the policy keeps the first token's bound.
            prefers_small: Whether the order inside a tenant is cheapest first.
        """
        self._limits = limits
        self._is_guarded = is_guarded and limits.first_token_slo_ns is not None
        self._prefers_small = prefers_small
        self._margin_ns = 0.0
        self._seats_fraction = 0.0
        self._refused_fraction = 0.0

    def note(self, *, is_refused: bool) -> None:
        """Note whether a request that might have entered was turned away for want of time."""
        self._refused_fraction += (is_refused - self._refused_fraction) / _ARRIVALS

    def prospect(
        self,
        entry: QueueEntry,
        queue: PoolQueue,
        *,
        look: PoolLook,
        slo_fraction: float,
        wait_fraction: float,
    ) -> Prospect:
        """Set an entry's times, and say what it can expect; the queue is left alone.

        Args:
            entry: Who would wait, from now on.
            queue: Where.
            look: At the pool.
            slo_fraction: Part of the bound on a first token that may be used.
            wait_fraction: Part of that which may be waited (see ``standing_queue``).
        """
        request, now_ns = entry.request, entry.enqueued_ns
        own_ns, bound_ns = self._set_times(
            entry, look=look, slo_fraction=slo_fraction, wait_fraction=wait_fraction
        )
        ahead = queue.ahead_of(entry)
        wait_ns = least_ns = look.wait_ns(ahead)
        # An assumed rate is good enough for advice, but not to turn away what might be served.
        if look.rate_tokens_per_s is None:
            least_ns = 0
        is_in_time = True
        if own_ns is not None:
            all_ns = reading_share_ns(entry.estimate, ahead, accounts=look.healthy, now_ns=now_ns)
            if look.shortage.reason is ReasonCode.OVERLOAD_PREFILL:
                wait_ns = least_ns = 0
            least_ns = max(least_ns, all_ns - own_ns)
            wait_ns = max(wait_ns, least_ns)
            is_in_time = self._prefers_small or self._harms_nobody(
                entry, queue, look=look, own_ns=own_ns, before_ns=now_ns + all_ns
            )
        return Prospect(
            ahead,
            wait_ns,
            is_in_time=is_in_time and bound_ns is not None and least_ns <= bound_ns,
            is_before_deadline=request.deadline_ns is None
            or now_ns + least_ns < request.deadline_ns,
        )

    def _set_times(
        self, entry: QueueEntry, *, look: PoolLook, slo_fraction: float, wait_fraction: float
    ) -> tuple[Nanos | None, Nanos | None]:
        """Set when an entry is due and when it is dropped.

        Returns:
            How long its prompt takes to read, None where nobody knows or asks; and the longest wait
            for which it may begin to wait, None where it may not at all.
        """
        limits, request, now_ns = self._limits, entry.request, entry.enqueued_ns
        bound_ns = limits.wait_ns_bound(request.priority)
        # A shorter wait of its own is a bound, and no claim to be served before others.
        entry.due_ns = now_ns + bound_ns
        longest_ns = limits.longest_wait_ns(request)
        bound_ns = wait_ns_max = min(bound_ns, longest_ns)
        own_ns = None
        if self._is_guarded and limits.classes[request.priority].is_interactive:
            own_ns = own_reading_ns(entry.estimate, accounts=look.healthy)
        if own_ns is not None:
            slo_ns = first_token_slo_ns(entry.estimate, limits, accounts=look.healthy)
            first_ns = int(slo_ns * slo_fraction)
            wait_ns_max = min(longest_ns, first_ns - own_ns)
            neutral = self._neutral_fraction(look.shortage)
            margin_ns = self._margin(own_ns, first_ns=first_ns)
            bound_ns = min(
                wait_ns_max,
                first_ns - max(own_ns, int(neutral * margin_ns)),
                int(first_ns * wait_fraction - (1.0 - neutral) * own_ns),
            )
            entry.due_ns = now_ns + first_ns
        entry.expires_ns = now_ns + wait_ns_max
        if request.deadline_ns is not None:
            entry.expires_ns = min(entry.expires_ns, request.deadline_ns)
            entry.due_ns = min(entry.due_ns, request.deadline_ns)
        return own_ns, bound_ns if wait_ns_max > 0 else None

    def _neutral_fraction(self, shortage: Shortage) -> float:
        """Return how far bounds are the same for all sizes, 0 to 1, and take the shortage in."""
        is_of_seats = shortage.reason is ReasonCode.OVERLOAD_PACE
        self._seats_fraction += (is_of_seats - self._seats_fraction) / _ARRIVALS
        if self._prefers_small:
            return 0.0
        fraction = min(1.0, self._refused_fraction / _REFUSED_FRACTION_FULL)
        return fraction * min(1.0, self._seats_fraction / _SEATS_FRACTION_FULL)

    def _margin(self, own_ns: Nanos, *, first_ns: Nanos) -> float:
        """Return the moving percentile of what prompts take to read, with this one in it."""
        margin = self._margin_ns or float(own_ns)
        margin *= 1 + _STEP * (_QUANTILE if own_ns > margin else _QUANTILE - 1)
        self._margin_ns = margin
        return min(margin, first_ns * _MARGIN_FRACTION_MAX)

    def _harms_nobody(
        self,
        entry: QueueEntry,
        queue: PoolQueue,
        *,
        look: PoolLook,
        own_ns: Nanos,
        before_ns: Nanos,
    ) -> bool:
        """Tell whether all behind it in its line are in time with it, or late without it too.

        Args:
            entry: Who would wait.
            queue: Where.
            look: At the pool.
            own_ns: To read its prompt.
            before_ns: When it will have been read.
        """
        starts_ns = before_ns
        for behind in queue.behind(entry):
            if starts_ns > behind.expires_ns >= starts_ns - own_ns:
                return False
            reading = own_reading_ns(behind.estimate, accounts=look.healthy)
            starts_ns += (reading or 0) // max(1, len(look.healthy))
        return True
