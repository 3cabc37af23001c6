"""Several replicas behind one admitter: admission and placement read the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import MS, SMALL_IN_FLIGHT_MAX, S, admitter_with
from tokenweir.core.admitter import Admitter
from tokenweir.core.decision import Admit, Dispatch, Enqueue, Expire, Reject
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import ReplicaId, ReservationId

NAMES = tuple(ReplicaId(f"r{number}") for number in range(3))
KV_TOKENS = 1_000
# Of the pool, what token policies promise at most.
LIMIT_TOKENS = 950

_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 900)),
        st.tuples(st.just("end"), st.integers(0, 1_000)),
        st.tuples(st.just("down"), st.integers(0, 2)),
        st.tuples(st.just("up"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.integers(1, 3_000)),
    ),
    max_size=60,
)


class _Pool:
    """A pool kept by hand, beside the admitter that is tested."""

    def __init__(self, policy: str, *, items_max: int) -> None:
        self.policy = policy
        self.admitter: Admitter = admitter_with(
            policy,
            kv_tokens=KV_TOKENS,
            replicas=NAMES,
            queue=QueueLimits(items_max=items_max, wait_ns_max=2 * S),
        )
        self.now_ns = 0
        self.healthy = set(NAMES)
        # What each open request holds, and where; what waits, in order of arrival.
        self.held: dict[str, tuple[ReplicaId, int]] = {}
        self.waiting: dict[str, int] = {}
        self.ended: dict[str, str] = {}

    def takes(self, replica: ReplicaId, tokens: int) -> bool:
        """Tell by hand whether a replica can take a request."""
        if replica not in self.healthy:
            return False
        mine = [held for where, held in self.held.values() if where == replica]
        if self.policy == "concurrency":
            return len(mine) < SMALL_IN_FLIGHT_MAX
        # The one token of an answer is held when it has been produced, of which nobody tells.
        return sum(held - 1 for held in mine) + tokens <= LIMIT_TOKENS

    def anyone_takes(self, tokens: int) -> bool:
        """Tell by hand whether there is capacity."""
        return any(self.takes(replica, tokens) for replica in NAMES)

    def hold(self, name: str, admit: Admit, tokens: int) -> None:
        """Note an admission, which has to go where there is room."""
        assert self.takes(admit.replica, tokens), f"{name} was sent to {admit.replica}"
        self.held[name] = (admit.replica, tokens)

    def arrive(self, name: str, tokens: int) -> None:
        """Let a request come."""
        could, waited = self.anyone_takes(tokens), bool(self.waiting)
        decision = self.admitter.arrive(Request(name, tokens - 1, 1), now_ns=self.now_ns)
        match decision:
            case Admit():
                self.hold(name, decision, tokens)
            case Enqueue():
                assert waited or not could
                self.waiting[name] = tokens
            case Reject():
                self.ended[name] = decision.reason.value
                assert (decision.reason is ReasonCode.NO_HEALTHY_REPLICA) == (not self.healthy)
                assert waited or not could
            case _:
                raise AssertionError(decision)
        self.advance()

    def advance(self) -> None:
        """Carry out what has become due; nobody waits who could enter."""
        for effect in self.admitter.advance(now_ns=self.now_ns):
            if isinstance(effect, Dispatch):
                self.hold(effect.ticket_id, effect.admit, self.waiting.pop(effect.ticket_id))
            elif isinstance(effect, Expire):
                del self.waiting[effect.ticket_id]
                assert effect.ticket_id not in self.ended
                self.ended[effect.ticket_id] = effect.reject.reason.value
                if effect.reject.reason is ReasonCode.NO_HEALTHY_REPLICA:
                    assert not self.healthy
        if self.waiting:
            head = next(iter(self.waiting.values()))
            assert not self.anyone_takes(head), "capacity stays unused while somebody waits"
        self.admitter.check_invariants()

    def end(self, name: str) -> None:
        """Let a request that runs end."""
        _, tokens = self.held.pop(name)
        self.admitter.settle(
            ReservationId(name),
            Usage(tokens - 1, 1),
            outcome=Outcome.FINISHED,
            now_ns=self.now_ns,
        )
        self.ended[name] = "finished"
        self.advance()

    def tell_health(self, replica: ReplicaId, *, is_healthy: bool) -> None:
        """Let a replica go or come back."""
        self.healthy = self.healthy | {replica} if is_healthy else self.healthy - {replica}
        signals = Signals(replica, self.now_ns, is_healthy=is_healthy)
        self.admitter.observe(signals, now_ns=self.now_ns)
        self.advance()


@pytest.mark.case("CASE-F4")
@pytest.mark.parametrize("policy", ["concurrency", "token"])
@given(actions=_ACTIONS, items_max=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_admission_when_replicas_come_and_go_then_it_agrees_with_placement(
    policy: str, actions: list[tuple[str, int]], items_max: int
) -> None:
    """Whoever is let in has a healthy replica with room; who is refused or waits has none."""
    pool = _Pool(policy, items_max=items_max)
    arrived = 0
    for what, number in actions:
        pool.now_ns += MS
        if what == "arrive":
            pool.arrive(f"q{arrived}", number + 1)
            arrived += 1
        elif what == "end" and pool.held:
            pool.end(sorted(pool.held)[number % len(pool.held)])
        elif what == "down":
            pool.tell_health(NAMES[number], is_healthy=False)
        elif what == "up":
            pool.tell_health(NAMES[number], is_healthy=True)
        elif what == "wait":
            # Leases are renewed as a driver does.
            pool.now_ns += number * MS
            for replica in NAMES:
                mine = {ReservationId(n): 0 for n, (r, _) in pool.held.items() if r == replica}
                pool.admitter.progress(replica, mine, now_ns=pool.now_ns)
            pool.advance()
    for name in list(pool.held):
        pool.end(name)
    while pool.held or pool.waiting:
        pool.now_ns += 3 * S
        pool.advance()
        for name in list(pool.held):
            pool.end(name)
    assert len(pool.ended) == arrived
