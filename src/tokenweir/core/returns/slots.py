"""When may each refused request come back, so that returns arrive as fast as they can be served?

Model: a virtual queue of returns per (class, tenant), whose end s is the time of the last slot
given out; c = expected tokens of the request; R = service rate in tokens/s; phi = the share of it
that returns get at that time (see ``fresh_load.py``); w = the tenant's weight over those of all
whose queue is not over.
Rule: s = max(s, now + 0.5 s, now + W) + c / (phi R w), W the predicted wait. A client is told
s - now plus 0 to 10 % of it, since none adds jitter to a delay it was told; beyond 60 s it is told
not to retry, and s stays. A slot is open from s until 2 s after the time that was told; then it is
released.
Properties: INV-RETURN-1 (open slots are bounded, each is found by its key until it is taken or
released). A flooder fills its own queue: others' slots come no later for it than by its weight.
Trade-off: a slot promises a time, not room: what nobody comes for is served to others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tokenweir.core.errors import InvariantError
from tokenweir.core.request import Priority
from tokenweir.core.retry import Rng
from tokenweir.core.returns.config import ReturnConfig
from tokenweir.core.returns.fresh_load import Shares
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["Lane", "ReturnSlots", "Slot", "SlotKey"]

_JITTER_FRACTION = 0.1
# Slower than this is a standstill; the quotient must stay a number.
_RATE_TOKENS_PER_S_MIN = 1.0

# Whose queue it is.
Lane = tuple[Priority, str]
# By what a return is recognised: tenant, hash of its body, and the number of its attempt.
SlotKey = tuple[str, bytes, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """A time at which one refused request may come back.

    Attributes:
        serial: Unique among the slots of one pool.
        lane: Whose queue it stands in.
        key: By what its owner is recognised.
        opens_ns: Before it a return is early.
        told_ns: What its owner was told, at or after ``opens_ns``.
        closes_ns: When it is released.
    """

    serial: int
    lane: Lane
    key: SlotKey
    opens_ns: Nanos
    told_ns: Nanos
    closes_ns: Nanos


class ReturnSlots:
    """The return queues of one pool."""

    def __init__(self, config: ReturnConfig, *, weight_of: Callable[[str], float]) -> None:
        """Start with no slot given out.

        Args:
            config: Bounds.
            weight_of: A tenant's share against others', above 0.
        """
        self.config = config
        self._weight_of = weight_of
        self._open: dict[int, Slot] = {}
        # Serials by key, earliest slot first.
        self._by_key: dict[SlotKey, deque[int]] = {}
        self._closing: list[tuple[Nanos, int]] = []
        # Ends of the queues that are not over, as (end, lane), with those that have moved since.
        self._ends: dict[Lane, Nanos] = {}
        self._over: list[tuple[Nanos, int, str]] = []
        self._weights = 0.0
        self._serial = 0

    def __len__(self) -> int:
        """Count open slots."""
        return len(self._open)

    def give(
        self,
        lane: Lane,
        key: SlotKey,
        *,
        cost_tokens: int,
        rate_tokens_per_s: float,
        shares: Shares,
        wait_ns: Nanos,
        now_ns: Nanos,
        rng: Rng,
    ) -> Slot | None:
        """Give out the next slot of a queue, or None where it would be too late or too many.

        Args:
            lane: Class and tenant.
            key: By which the return will be recognised.
            cost_tokens: What the request is expected to use, at its mean.
            rate_tokens_per_s: Service rate of the pool.
            shares: What all returns get of it.
            wait_ns: Predicted until there is room.
            now_ns: The time.
            rng: Chance of the jitter.
        """
        self.release(now_ns=now_ns)
        config = self.config
        if len(self._open) >= config.slots_max:
            return None
        weight = self._weight_of(lane[1])
        end_ns = self._ends.get(lane)
        share = weight / (self._weights + (weight if end_ns is None else 0.0))
        start_ns = max(now_ns + config.wait_ns_min, now_ns + wait_ns, end_ns or 0)
        share *= shares.at(min(1.0, (start_ns - now_ns) / config.wait_ns_max))
        rate = max(rate_tokens_per_s * share, _RATE_TOKENS_PER_S_MIN)
        opens_ns = start_ns + int(cost_tokens * NS_PER_S / rate)
        delay_ns = opens_ns - now_ns
        if delay_ns > config.wait_ns_max:
            return None
        told_ns = now_ns + delay_ns + int(delay_ns * _JITTER_FRACTION * rng.random())
        told_ns = min(told_ns, now_ns + config.wait_ns_max)
        self._set_end(lane, opens_ns, weight=weight)
        self._serial += 1
        slot = Slot(self._serial, lane, key, opens_ns, told_ns, told_ns + config.grace_ns)
        self._open[slot.serial] = slot
        self._by_key.setdefault(key, deque()).append(slot.serial)
        heapq.heappush(self._closing, (slot.closes_ns, slot.serial))
        return slot

    def find(self, key: SlotKey, *, now_ns: Nanos) -> Slot | None:
        """Return the earliest slot under a key that has not closed, open by now or not."""
        self.release(now_ns=now_ns)
        serials = self._by_key.get(key)
        return self._open[serials[0]] if serials else None

    def get(self, serial: int, *, now_ns: Nanos) -> Slot | None:
        """Return a slot by its serial, None where it was taken or has closed."""
        self.release(now_ns=now_ns)
        return self._open.get(serial)

    def take(self, slot: Slot) -> None:
        """Use a slot up."""
        del self._open[slot.serial]
        serials = self._by_key[slot.key]
        serials.remove(slot.serial)
        if not serials:
            del self._by_key[slot.key]

    def release(self, *, now_ns: Nanos) -> None:
        """Forget slots that nobody used, and queues that are over."""
        closing = self._closing
        while closing and closing[0][0] <= now_ns:
            _, serial = heapq.heappop(closing)
            slot = self._open.get(serial)
            if slot is not None:
                self.take(slot)
        over = self._over
        while over and over[0][0] <= now_ns:
            _, priority, tenant = heapq.heappop(over)
            lane = (Priority(priority), tenant)
            end_ns = self._ends.get(lane)
            if end_ns is None:
                continue
            if end_ns > now_ns:
                heapq.heappush(over, (end_ns, priority, tenant))
                continue
            del self._ends[lane]
            # Rounding must not add up over a long life.
            left = self._weights - self._weight_of(tenant)
            self._weights = left if self._ends else 0.0

    def check_invariants(self) -> None:
        """Recount. Cost O(open slots).

        Raises:
            InvariantError: INV-RETURN-1 does not hold.
        """
        listed = sum(len(serials) for serials in self._by_key.values())
        if not len(self._open) == listed <= self.config.slots_max:
            raise InvariantError(
                f"{len(self._open)} return slots are open, {listed} are listed by key, "
                f"the bound is {self.config.slots_max}"
            )

    def _set_end(self, lane: Lane, end_ns: Nanos, *, weight: float) -> None:
        if lane not in self._ends:
            self._weights += weight
            heapq.heappush(self._over, (end_ns, int(lane[0]), lane[1]))
        self._ends[lane] = end_ns
