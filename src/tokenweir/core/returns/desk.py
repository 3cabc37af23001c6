"""Is this a first attempt, a return at its time, or a retry that nobody asked for?

Rule: a genuine ticket, or an open slot under the request's key, makes it a return in its slot: it
bypasses the budget and is preferred to its tenant's first attempts. The key is tenant, hash of the
body, and the number of the attempt where the client tells one; a client that tells none is matched
with those that told none. Who numbers its attempts and comes before its slot loses it, is charged,
and stands behind the others if it is refused again; any other retry is charged. Outer loops around
client libraries number their attempts from nought again: a first attempt whose body was refused
within the last minute, though not within the last 0.9 s, is a retry too. Equal bodies that come
together, or are refused more than 12 times, are many users', who cannot be told apart, and none of
them is charged.
The budget is asked only while the pool was short in the last 10 s: a retry that takes nobody's
place does no harm. While it was, a retry that is let through enters at once or gets a slot, and
does not wait among first attempts.
Trade-off: see the record on how returns are recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request, ReturnTicket
from tokenweir.core.retry import Rng
from tokenweir.core.returns.budget import RetryBudget
from tokenweir.core.returns.config import ReturnConfig
from tokenweir.core.returns.fresh_load import FreshLoad, Shares, Shortness, return_share
from tokenweir.core.returns.slots import ReturnSlots, Slot, SlotKey
from tokenweir.core.returns.ticket import SpentTickets
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["Comer", "ReturnDesk", "Standing", "ticket_of"]

_NEVER_NS = -(1 << 62)
# The attempt number of clients that tell none.
_UNNUMBERED = -1
# Requests that the worst wrapper makes of one call, and how long it goes on.
_REFUSALS_OF_ONE_MAX = 12
_REPEATED_WITHIN_NS = 60 * NS_PER_S
# Their pauses begin at a second.
_REPEATED_AFTER_NS = 900 * NS_PER_MS


class Standing(Enum):
    """How a request stands to what its client was told."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    FIRST = "first"
    IN_SLOT = "in_slot"
    EARLY = "early"
    UNPACED = "unpaced"


@dataclass(frozen=True, slots=True)
class Comer:
    """How one arrival stands, and what it was recognised by."""

    standing: Standing
    slot: Slot | None = None
    ticket: ReturnTicket | None = None

    @property
    def is_charged(self) -> bool:
        """Whether it is a retry that nobody paced."""
        return self.standing in (Standing.EARLY, Standing.UNPACED)


_FIRST = Comer(Standing.FIRST)
_UNPACED = Comer(Standing.UNPACED)


class ReturnDesk:
    """Slots, budget and tickets of one pool."""

    def __init__(self, config: ReturnConfig, *, weight_of: Callable[[str], float]) -> None:
        """Start with nothing given out.

        Args:
            config: Bounds.
            weight_of: A tenant's share against others', above 0.
        """
        self.config = config
        self.slots = ReturnSlots(config, weight_of=weight_of)
        self.budget = RetryBudget(config)
        self.load = FreshLoad()
        self.shortness = Shortness()
        self._spent = SpentTickets(items_max=config.slots_max)
        self._short_ns: Nanos = _NEVER_NS
        # How often a tenant's body was refused, and when last; the one refused last stands last.
        self._refused: OrderedDict[tuple[str, bytes], tuple[int, Nanos]] = OrderedDict()

    def look(self, request: Request, *, now_ns: Nanos) -> Comer:
        """Tell how an arrival stands; nothing is used up."""
        ticket = request.ticket
        if ticket is not None:
            slot = self.slots.get(ticket.serial, now_ns=now_ns)
            if slot is not None and ticket_of(slot) != ticket:
                # Another gateway's serial.
                slot = None
            if self._spent.is_good(ticket, now_ns=now_ns):
                return Comer(Standing.IN_SLOT, slot, ticket)
            if now_ns < ticket.opens_ns:
                return Comer(Standing.EARLY, slot, ticket)
        if request.body_hash:
            is_repeated = request.attempt == 0 and self._is_repeated(request, now_ns=now_ns)
            slot = self.slots.find(_key_of(request, attempts_on=0), now_ns=now_ns)
            if slot is not None and slot.opens_ns <= now_ns:
                return Comer(Standing.IN_SLOT, slot)
            if slot is not None and request.attempt > 0:
                return Comer(Standing.EARLY, slot)
            if is_repeated:
                return _UNPACED
        return _UNPACED if request.attempt > 0 else _FIRST

    def refusal(
        self, request: Request, comer: Comer, *, cost_tokens: int, now_ns: Nanos
    ) -> ReasonCode | None:
        """Return why a retry may not pass now, or None; nothing is charged."""
        if request.attempt >= self.config.attempts_max:
            return ReasonCode.ATTEMPTS_EXHAUSTED
        if not comer.is_charged or not self.is_short(now_ns):
            return None
        if self.budget.allows(request.tenant, cost_tokens, now_ns=now_ns):
            return None
        return ReasonCode.RETRY_BUDGET_EXHAUSTED

    def enter(self, request: Request, comer: Comer, *, cost_tokens: int, now_ns: Nanos) -> None:
        """Use up what an arrival came with, and charge it; once, and after ``refusal``."""
        if comer.standing is Standing.FIRST:
            self.load.note(cost_tokens, now_ns=now_ns)
        elif comer.is_charged:
            self.budget.charge(request.tenant, cost_tokens, now_ns=now_ns)
        ticket = comer.ticket
        if comer.slot is not None:
            self.slots.take(comer.slot)
            # Recognised by its body, it could still come again with its ticket.
            ticket = ticket_of(comer.slot)
        if ticket is not None:
            self._spent.spend(ticket)

    def note_admitted(self, request: Request, *, cost_tokens: int, now_ns: Nanos) -> None:
        """Let the budget grow with a first attempt that was admitted."""
        self._refused.pop((request.tenant, request.body_hash), None)
        if request.attempt == 0:
            self.budget.note_first(request.tenant, cost_tokens, now_ns=now_ns)

    def advise(
        self,
        request: Request,
        *,
        cost_tokens: int,
        rate_tokens_per_s: float,
        wait_ns: Nanos,
        now_ns: Nanos,
        rng: Rng,
    ) -> Slot | None:
        """Give a refused request its slot, or None where its client should not retry.

        Args:
            request: What was refused for want of room.
            cost_tokens: What it is expected to use, at its mean, in the unit of the rate.
            rate_tokens_per_s: Service rate of the pool.
            wait_ns: Predicted until there is room.
            now_ns: The time.
            rng: Chance of the jitter.
        """
        self._short_ns = now_ns
        self._remember(request, now_ns=now_ns)
        if request.attempt + 1 >= self.config.attempts_max:
            return None
        load = self.load.tokens_per_s(now_ns=now_ns)
        near = return_share(load, rate_per_s=rate_tokens_per_s, config=self.config)
        self.shortness.note(now_ns=now_ns)
        hope = 1.0 - self.shortness.fraction
        far = near + max(0.0, self.config.share_hoped - near) * hope
        return self.slots.give(
            (request.priority, request.tenant),
            _key_of(request, attempts_on=1),
            cost_tokens=cost_tokens,
            rate_tokens_per_s=rate_tokens_per_s,
            shares=Shares(near, far),
            wait_ns=wait_ns,
            now_ns=now_ns,
            rng=rng,
        )

    def _remember(self, request: Request, *, now_ns: Nanos) -> None:
        if not request.body_hash:
            return
        refused, body = self._refused, (request.tenant, request.body_hash)
        count, last_ns = refused.pop(body, (0, now_ns))
        if now_ns - last_ns >= _REPEATED_WITHIN_NS:
            count = 0
        if len(refused) >= self.config.slots_max:
            refused.popitem(last=False)
        refused[body] = (count + 1, now_ns)

    def _is_repeated(self, request: Request, *, now_ns: Nanos) -> bool:
        count, last_ns = self._refused.get((request.tenant, request.body_hash), (0, now_ns))
        if not 0 < count <= _REFUSALS_OF_ONE_MAX:
            return False
        return _REPEATED_AFTER_NS <= now_ns - last_ns < _REPEATED_WITHIN_NS

    def is_short(self, now_ns: Nanos) -> bool:
        """Tell whether somebody was refused for want of room in the last 10 s."""
        return now_ns - self._short_ns < self.config.budget_window_s * NS_PER_S


def ticket_of(slot: Slot) -> ReturnTicket:
    """Return what a ticket for a slot says."""
    return ReturnTicket(slot.serial, slot.opens_ns, slot.closes_ns)


def _key_of(request: Request, *, attempts_on: int) -> SlotKey:
    number = request.attempt + attempts_on if request.counts_attempts else _UNNUMBERED
    return (request.tenant, request.body_hash, number)
