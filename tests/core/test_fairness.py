"""Whose turn it is: every row is work conserving, and the virtual counter is fair."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FAIRNESS, Fairness, FairnessConfig, fairness_row
from tokenweir.core.queues import QueueEntry
from tokenweir.core.queues.band import Band
from tokenweir.core.request import Request
from tokenweir.core.units import TicketId

CONFIG = FairnessConfig(prompt_weight=1.0, output_weight=2.0)


class Server:
    """Serves one request at a time, charged when it begins, of tenants with lines of their own."""

    def __init__(self, fairness: Fairness, weights: dict[str, float]) -> None:
        """Start with nobody waiting."""
        self.fairness = fairness
        self.weights = weights
        self.lines: dict[str, list[tuple[int, int, int]]] = {}
        self.service = dict.fromkeys(weights, 0.0)
        self.arrivals = 0

    def arrive(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Let a request wait."""
        self.arrivals += 1
        line = self.lines.setdefault(tenant, [])
        line.append((self.arrivals, prompt_tokens, output_tokens))
        if len(line) == 1:
            self.fairness.join(tenant, weight=self.weights[tenant], arrival=self.arrivals)

    def serve(self) -> str | None:
        """Serve whose turn it is."""
        tenant = self.fairness.next()
        if tenant is None:
            return None
        self.fairness.turn(tenant)
        line = self.lines[tenant]
        _, prompt_tokens, output_tokens = line.pop(0)
        if line:
            self.fairness.head(tenant, arrival=line[0][0])
        else:
            del self.lines[tenant]
            self.fairness.leave(tenant)
        self.fairness.charge(
            tenant,
            weight=self.weights[tenant],
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        self.service[tenant] += prompt_tokens + 2 * output_tokens
        return tenant


def waiting(name: str, tenant: str, *, tokens: int, arrival: int) -> QueueEntry:
    """Build an entry that is all prompt."""
    entry = QueueEntry(
        TicketId(name),
        Request(name, tokens, 1, tenant=tenant),
        Estimate(tokens, 0),
        enqueued_ns=0,
        expires_ns=1,
    )
    entry.key = (False, 0.0, arrival)
    return entry


requests = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 1_000), st.integers(1, 500), st.booleans()),
    max_size=120,
)


@pytest.mark.parametrize("name", FAIRNESS)
@settings(deadline=None, max_examples=40)
@given(asked=requests)
def test_row_when_anybody_waits_then_serves_somebody_who_does(
    name: str, asked: list[tuple[str, int, int, bool]]
) -> None:
    """Work conserving: nobody is served who does not wait, and all are in the end."""
    server = Server(fairness_row(name, CONFIG), dict.fromkeys("abcd", 1.0))
    served = 0
    for tenant, prompt_tokens, output_tokens, serves in asked:
        server.arrive(tenant, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        served += serves and server.serve() is not None
    while server.serve() is not None:
        served += 1
    assert served == len(asked)
    assert not server.lines


@pytest.mark.parametrize("name", FAIRNESS)
@pytest.mark.parametrize("own_tokens", [0, 10, 10**9])
def test_row_when_asked_what_is_ahead_then_says_a_part(name: str, own_tokens: int) -> None:
    """Part of what another has waiting: never less than nothing or more than all."""
    band = Band(fairness_row(name, CONFIG))
    band.push(waiting("other", "other", tokens=100, arrival=1), weight=1.0)
    if own_tokens:
        band.push(waiting("mine", "me", tokens=own_tokens, arrival=2), weight=1.0)
    ahead = band.ahead_of("me", (False, 0.0, 3), weight=1.0)
    own_items = 1 if own_tokens else 0
    assert 0.0 <= ahead.items - own_items <= 1.0
    assert 0.0 <= ahead.debt_tokens - own_tokens <= 100.0


def test_row_when_unknown_then_lists_those_there_are() -> None:
    """One line that says what is allowed."""
    with pytest.raises(ConfigError, match="unknown fairness 'luck', allowed: vtc, sfq"):
        fairness_row("luck", CONFIG)


@pytest.mark.parametrize("name", ["vtc", "sfq"])
@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 500)), min_size=60, max_size=60),
    weights=st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.sampled_from([1.0, 2.0, 5.0])),
)
def test_counter_when_two_wait_all_the_time_then_services_stay_within_twice_the_largest_charge(
    name: str, sizes: list[tuple[int, int]], weights: tuple[float, float]
) -> None:
    """The bound of the virtual token counter, however long it goes on."""
    server = Server(fairness_row(name, CONFIG), {"a": weights[0], "b": weights[1]})
    for prompt_tokens, output_tokens in sizes:
        server.arrive("a", prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        server.arrive("b", prompt_tokens=output_tokens, output_tokens=prompt_tokens)
    largest = max(max(p + 2 * o, o + 2 * p) for p, o in sizes) / min(weights)
    while len(server.lines) == 2:
        server.serve()
        gap = server.service["a"] / weights[0] - server.service["b"] / weights[1]
        assert abs(gap) <= 2 * largest


def test_counter_when_weights_differ_then_services_do_so_within_5_percent() -> None:
    """Three times the weight, three times the service."""
    server = Server(fairness_row("vtc", CONFIG), {"a": 3.0, "b": 1.0})
    for _ in range(2_000):
        server.arrive("a", prompt_tokens=100, output_tokens=50)
        server.arrive("b", prompt_tokens=100, output_tokens=50)
    for _ in range(2_000):
        server.serve()
    assert server.service["a"] / server.service["b"] == pytest.approx(3.0, rel=0.05)


def test_counter_when_a_tenant_was_idle_then_has_no_credit() -> None:
    """The lift: who comes back takes turns, and does not make good for the time it was away."""
    server = Server(fairness_row("vtc", CONFIG), {"a": 1.0, "b": 1.0})
    server.arrive("b", prompt_tokens=1, output_tokens=1)
    server.serve()
    for _ in range(200):
        server.arrive("a", prompt_tokens=100, output_tokens=50)
    for _ in range(100):
        server.serve()
    for _ in range(100):
        server.arrive("b", prompt_tokens=100, output_tokens=50)
    turns = [server.serve() for _ in range(20)]
    assert turns.count("b") in {10, 11}


def test_counter_when_less_was_used_than_charged_then_gets_it_back() -> None:
    """A tenant pays for what it used, not for what was predicted."""
    row = fairness_row("vtc", CONFIG)
    row.join("a", weight=1.0, arrival=1)
    row.join("b", weight=1.0, arrival=2)
    row.charge("a", weight=1.0, prompt_tokens=0, output_tokens=1_000)
    row.charge("b", weight=1.0, prompt_tokens=0, output_tokens=500)
    assert row.next() == "b"
    row.settle("a", prompt_tokens=0, output_tokens=-900)
    assert row.next() == "a"
    row.settle("stranger", prompt_tokens=0, output_tokens=-900)
    assert row.next() == "a"


def test_counter_when_others_are_given_back_then_who_was_lifted_to_them_comes_down_too() -> None:
    """One that came when much was foreseen for the other is ahead by its own 50 units, no more."""
    counter = fairness_row("vtc", CONFIG)
    counter.join("flood", weight=1.0, arrival=1)
    counter.charge("flood", weight=1.0, prompt_tokens=0, output_tokens=500)
    counter.join("quiet", weight=1.0, arrival=2)
    counter.leave("quiet")
    counter.charge("quiet", weight=1.0, prompt_tokens=50, output_tokens=0)
    counter.settle("flood", prompt_tokens=0, output_tokens=-450)
    level = counter.level("quiet", weight=1.0, own_charge=0.0)
    assert counter.units_before(level, ["flood"]) == [pytest.approx(50.0)]
    counter.join("quiet", weight=1.0, arrival=3)
    for expected in ("flood", "quiet"):
        assert counter.next() == expected
        counter.charge(expected, weight=1.0, prompt_tokens=51, output_tokens=0)
    assert counter.next() == "flood"
    # Down once, and not again.
    counter.leave("quiet")
    counter.join("quiet", weight=1.0, arrival=4)
    assert counter.next() == "flood"


def test_counter_when_others_are_given_back_while_one_waits_then_it_does_not_wait_for_that() -> (
    None
):
    """It was lifted to 1,000 foreseen units, of which 900 come back: one turn, and then its own."""
    counter = fairness_row("vtc", CONFIG)
    counter.join("flood", weight=1.0, arrival=1)
    counter.charge("flood", weight=1.0, prompt_tokens=0, output_tokens=500)
    counter.join("quiet", weight=1.0, arrival=2)
    counter.charge("quiet", weight=1.0, prompt_tokens=10, output_tokens=0)
    counter.settle("flood", prompt_tokens=0, output_tokens=-450)
    assert counter.next() == "flood"
    counter.charge("flood", weight=1.0, prompt_tokens=20, output_tokens=0)
    assert counter.next() == "quiet"


def test_counter_when_one_is_given_back_below_its_own_lift_then_gets_that_once() -> None:
    """Lifted from 600 to 1,000, given back 300: it is 300 behind, and not 600."""
    counter = fairness_row("vtc", CONFIG)
    counter.join("old", weight=1.0, arrival=1)
    counter.charge("old", weight=1.0, prompt_tokens=1_000, output_tokens=0)
    counter.charge("late", weight=1.0, prompt_tokens=600, output_tokens=0)
    counter.join("late", weight=1.0, arrival=2)
    counter.settle("late", prompt_tokens=-300, output_tokens=0)
    counter.charge("late", weight=1.0, prompt_tokens=299, output_tokens=0)
    assert counter.next() == "late"
    counter.charge("late", weight=1.0, prompt_tokens=2, output_tokens=0)
    assert counter.next() == "old"


def test_counter_when_nobody_waits_then_nothing_is_charged_and_nothing_comes_back() -> None:
    """Loose predictions of an idle hour are no credit against who comes later."""
    row = fairness_row("vtc", CONFIG)
    assert not row.charge("early", weight=1.0, prompt_tokens=100, output_tokens=4_000)
    row.join("late", weight=1.0, arrival=1)
    row.join("early", weight=1.0, arrival=2)
    assert row.next() == "late"
    assert row.charge("late", weight=1.0, prompt_tokens=1, output_tokens=1)
    assert row.next() == "early"


def test_counter_when_there_are_too_many_idle_tenants_then_forgets_who_was_idle_longest() -> None:
    """What is remembered is bounded."""
    row = fairness_row("vtc", FairnessConfig(tenants_max=10))
    row.join("waiting", weight=1.0, arrival=1)
    for number in range(100):
        row.charge(f"t{number}", weight=1.0, prompt_tokens=1, output_tokens=1)
    assert len(row._counters) == 10  # type: ignore[attr-defined]


def test_round_robin_when_sizes_differ_then_turns_are_equal() -> None:
    """It counts requests."""
    server = Server(fairness_row("round_robin", CONFIG), {"a": 1.0, "b": 1.0})
    for _ in range(10):
        server.arrive("a", prompt_tokens=1_000, output_tokens=500)
        server.arrive("b", prompt_tokens=1, output_tokens=1)
    assert [server.serve() for _ in range(6)] == ["a", "b"] * 3


def test_first_come_when_one_floods_then_waits_for_nobody() -> None:
    """It is what it says: who came first."""
    server = Server(fairness_row("fcfs", CONFIG), {"a": 1.0, "b": 1.0})
    for tenant in "aaabaab":
        server.arrive(tenant, prompt_tokens=1, output_tokens=1)
    assert "".join(server.serve() or "" for _ in range(7)) == "aaabaab"


def test_counter_when_a_heavy_tenant_is_settled_then_its_weight_counts_there_too() -> None:
    """What is given back weighs as much as what was charged."""
    row = fairness_row("vtc", CONFIG)
    row.join("heavy", weight=4.0, arrival=1)
    row.join("light", weight=1.0, arrival=2)
    row.charge("heavy", weight=4.0, prompt_tokens=0, output_tokens=2_000)
    row.charge("light", weight=1.0, prompt_tokens=0, output_tokens=300)
    # Counters 1,000 and 600; a quarter of 1,200 units back leaves 700.
    row.settle("heavy", prompt_tokens=0, output_tokens=-600)
    assert row.next() == "light"
    row.settle("heavy", prompt_tokens=0, output_tokens=-400)
    assert row.next() == "heavy"


def test_ahead_when_weights_differ_then_more_of_the_heavier_is_served_before() -> None:
    """Until its counter has reached the newcomer's, which takes a heavier one more service."""
    row = fairness_row("vtc", CONFIG)
    row.join("light", weight=1.0, arrival=1)
    row.join("heavy", weight=4.0, arrival=2)
    level = row.level("me", weight=2.0, own_charge=200.0)
    assert row.units_before(level, ["light", "heavy"]) == [
        pytest.approx(100.0),
        pytest.approx(400.0),
    ]


def test_start_time_when_a_tenant_comes_back_then_starts_with_the_service_of_now() -> None:
    """Not at the tag it left behind; and what outgrows its prediction moves nobody's time."""
    server = Server(fairness_row("sfq", CONFIG), {"a": 1.0, "b": 1.0, "c": 1.0})
    server.arrive("b", prompt_tokens=1, output_tokens=1)
    server.serve()
    for _ in range(60):
        server.arrive("a", prompt_tokens=100, output_tokens=50)
        server.arrive("c", prompt_tokens=100, output_tokens=50)
    for _ in range(40):
        server.serve()
    for _ in range(20):
        server.arrive("b", prompt_tokens=100, output_tokens=50)
    turns = [server.serve() for _ in range(30)]
    assert {turns.count(tenant) for tenant in "abc"} <= {9, 10, 11}


def test_start_time_when_a_request_outgrows_its_prediction_then_time_stands_still() -> None:
    """Only who enters moves it: else newcomers would start behind those who wait."""
    row = fairness_row("sfq", CONFIG)
    row.join("waiting", weight=1.0, arrival=1)
    row.charge("long", weight=1.0, prompt_tokens=0, output_tokens=1_000)
    row.join("new", weight=1.0, arrival=2)
    row.turn("waiting")
    row.charge("waiting", weight=1.0, prompt_tokens=1, output_tokens=0)
    assert row.next() == "new"


def test_round_robin_when_a_head_changes_without_service_then_its_turn_is_kept() -> None:
    """Who has an urgent request in its line, or loses one to time, is not sent to the end."""
    row = fairness_row("round_robin", CONFIG)
    row.join("a", weight=1.0, arrival=1)
    row.join("b", weight=1.0, arrival=2)
    row.head("a", arrival=3)
    assert row.next() == "a"
    row.turn("a")
    row.head("a", arrival=4)
    assert row.next() == "b"


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(1, 500), st.integers(1, 250), st.integers(0, 2)
        ),
        min_size=20,
        max_size=150,
    )
)
def test_counter_when_arrivals_are_random_then_any_two_that_wait_stay_within_the_bound(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """2 U over every span in which both of a pair have something waiting, whoever else comes."""
    weights = {"a": 1.0, "b": 2.0, "c": 3.0}
    server = Server(fairness_row("vtc", CONFIG), weights)
    largest = max(p + 2 * o for _, p, o, _ in steps)
    began: dict[tuple[str, str], tuple[float, float]] = {}

    def look() -> None:
        for pair in (("a", "b"), ("a", "c"), ("b", "c")):
            if not all(tenant in server.lines for tenant in pair):
                began.pop(pair, None)
                continue
            now = tuple(server.service[tenant] / weights[tenant] for tenant in pair)
            first, second = began.setdefault(pair, (now[0], now[1]))
            assert abs((now[0] - first) - (now[1] - second)) <= 2 * largest

    for tenant, prompt_tokens, output_tokens, serves in steps:
        server.arrive(tenant, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        look()
        for _ in range(serves):
            server.serve()
            look()


def served_once(server: Server, *tenants: str) -> None:
    """Serve each of them a little, so that it is known, and let none of them wait."""
    for tenant in tenants:
        server.arrive(tenant, prompt_tokens=1, output_tokens=1)
    while server.serve() is not None:
        pass


@pytest.mark.parametrize("name", ["vtc", "sfq"])
def test_counter_when_one_had_less_than_all_who_wait_then_goes_before_those_it_is_level_with(
    name: str,
) -> None:
    """A quiet tenant does not stand behind a flooder's head that waits for room."""
    server = Server(fairness_row(name, CONFIG), dict.fromkeys(["flooder", "quiet"], 1.0))
    served_once(server, "quiet")
    for _ in range(10):
        server.arrive("flooder", prompt_tokens=1_000, output_tokens=100)
    for _ in range(3):
        server.serve()
    server.arrive("quiet", prompt_tokens=10, output_tokens=10)
    assert [server.serve() for _ in range(3)] == ["quiet", "flooder", "flooder"]


def test_counter_when_many_come_at_once_then_one_of_them_passes() -> None:
    """Who makes up names gains one turn by it; the others of them wait for theirs."""
    names = [f"name {number}" for number in range(4)]
    server = Server(fairness_row("vtc", CONFIG), dict.fromkeys(["steady", *names], 1.0))
    for _ in range(10):
        server.arrive("steady", prompt_tokens=100, output_tokens=100)
    for _ in range(2):
        server.serve()
    for number in names:
        server.arrive(number, prompt_tokens=1, output_tokens=1)
    assert [server.serve() for _ in range(5)] == ["name 0", "steady", *names[1:]]


def test_counter_when_the_one_who_passed_leaves_then_another_has_to_wait_for_a_turn() -> None:
    """Coming and going is no way around it."""
    row = fairness_row("vtc", CONFIG)
    for number, tenant in enumerate(["steady", "first"]):
        row.join(tenant, weight=1.0, arrival=number)
    row.charge("steady", weight=1.0, prompt_tokens=10, output_tokens=0)
    row.charge("first", weight=1.0, prompt_tokens=10, output_tokens=0)
    row.join("passes", weight=1.0, arrival=3)
    assert row.next() == "passes"
    row.leave("passes")
    row.join("waits", weight=1.0, arrival=4)
    assert row.next() == "steady"
    row.turn("steady")
    row.charge("steady", weight=1.0, prompt_tokens=10, output_tokens=0)
    row.join("passes too", weight=1.0, arrival=5)
    assert row.next() == "passes too"
