"""Return slots: when each refused request may come back."""

from __future__ import annotations

import random
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import MS, FixedRng, S
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority
from tokenweir.core.returns import ReturnConfig, ReturnSlots, Slot
from tokenweir.core.returns.fresh_load import FreshLoad, Shares, Shortness, return_share
from tokenweir.core.units import Nanos

P1 = Priority.P1
RATE = 10_000.0


def slots_of(**settings_: object) -> ReturnSlots:
    """Return empty queues; tenant ``heavy`` weighs three, everybody else one."""
    config = ReturnConfig(**settings_)  # type: ignore[arg-type]
    return ReturnSlots(config, weight_of=lambda tenant: 3.0 if tenant == "heavy" else 1.0)


def give(
    slots: ReturnSlots,
    tenant: str = "a",
    *,
    now_ns: Nanos = 0,
    wait_ns: Nanos = 0,
    body: bytes = b"x",
    cost_tokens: int = 1_000,
    draw: float = 0.0,
    rate: float = RATE,
) -> Slot | None:
    """Ask for a slot."""
    return slots.give(
        (P1, tenant),
        (tenant, body, 1),
        cost_tokens=cost_tokens,
        rate_tokens_per_s=rate,
        shares=Shares(1.0, 1.0),
        wait_ns=wait_ns,
        now_ns=now_ns,
        rng=FixedRng(draw),
    )


def test_slots_when_many_are_refused_at_once_then_they_are_spaced_by_what_can_be_served() -> None:
    """A thousand tokens at ten thousand a second: one every tenth of a second."""
    slots = slots_of()
    given_ = [give(slots) for _ in range(4)]
    assert [slot and slot.opens_ns for slot in given_] == [600 * MS, 700 * MS, 800 * MS, 900 * MS]


def test_slot_when_a_longer_wait_is_predicted_then_starts_after_it() -> None:
    """The backlog is served first."""
    slot = give(slots_of(), wait_ns=5 * S)
    assert slot is not None
    assert slot.opens_ns == 5 * S + 100 * MS


def test_slot_when_its_jitter_is_drawn_then_is_told_later_and_never_earlier() -> None:
    """Up to a tenth of the delay."""
    slot = give(slots_of(), wait_ns=10 * S - 100 * MS, draw=0.5)
    assert slot is not None
    assert (slot.opens_ns, slot.told_ns) == (10 * S, 10 * S + 500 * MS)
    assert slot.closes_ns == slot.told_ns + 2 * S


def test_slot_when_it_would_be_over_a_minute_away_then_there_is_none_and_the_queue_stays() -> None:
    """Who is told not to retry takes no place from who comes next."""
    slots = slots_of()
    first = give(slots)
    assert give(slots, cost_tokens=700_000) is None
    second = give(slots)
    assert first is not None
    assert second is not None
    assert second.opens_ns - first.opens_ns == 100 * MS


def test_flooder_when_it_has_filled_its_queue_then_another_tenant_comes_long_before_its_end() -> (
    None
):
    """Its slots go on for a minute, the other's first is two spaces away."""
    slots = slots_of()
    while (last := give(slots, "flood")) is not None:
        end_ns = last.opens_ns
    assert end_ns > 59 * S
    quiet = give(slots, "quiet")
    assert quiet is not None
    assert quiet.opens_ns == 700 * MS


def test_tenants_when_they_weigh_differently_then_their_slots_are_as_dense() -> None:
    """Three to one."""
    slots = slots_of()
    give(slots, "heavy"), give(slots, "light")
    spaces = {}
    for tenant in ("heavy", "light"):
        first, second = give(slots, tenant), give(slots, tenant)
        assert first is not None
        assert second is not None
        spaces[tenant] = second.opens_ns - first.opens_ns
    assert spaces["light"] == pytest.approx(3 * spaces["heavy"], rel=1e-6)


def test_slot_when_nobody_uses_it_then_is_released_two_seconds_after_its_time() -> None:
    """Who comes later has none."""
    slots = slots_of()
    slot = give(slots)
    assert slot is not None
    assert slots.find(slot.key, now_ns=slot.closes_ns - 1) == slot
    assert slots.find(slot.key, now_ns=slot.closes_ns) is None
    assert len(slots) == 0


def test_slots_when_as_many_are_open_as_may_be_then_no_more_are_given() -> None:
    """The memory is bounded; clients beyond it are told not to retry."""
    slots = slots_of(slots_max=2)
    assert give(slots)
    assert give(slots)
    assert give(slots) is None
    assert give(slots, now_ns=100 * S)


def test_slots_when_equal_bodies_have_several_then_the_earliest_is_found_first() -> None:
    """Each is used once."""
    slots = slots_of()
    first, second = give(slots), give(slots)
    assert first is not None
    assert second is not None
    for slot in (first, second):
        assert slots.find(first.key, now_ns=S) == slot
        slots.take(slot)
    assert slots.find(first.key, now_ns=S) is None


refusals = st.lists(
    st.tuples(
        st.integers(0, 2 * S),  # later than the one before
        st.sampled_from(["heavy", "b", "c", "d"]),
        st.integers(1, 20_000),  # cost
        st.integers(0, 70 * S),  # wait
        st.booleans(),  # whether a slot that is open now is used
    ),
    max_size=80,
)


@settings(deadline=None, print_blob=True)
@given(refusals=refusals, seed=st.integers(0, 9))
def test_slots_when_given_in_any_order_then_they_are_bounded_and_never_early(
    refusals: list[tuple[Nanos, str, int, Nanos, bool]], seed: int
) -> None:
    """INV-RETURN-1, half a second at least, a minute at most, in order within a tenant."""
    slots, rng, now_ns = slots_of(slots_max=30), random.Random(seed), 0
    last: dict[str, Nanos] = {}
    for later_ns, tenant, cost, wait_ns, uses in refusals:
        now_ns += later_ns
        key = (tenant, b"%d" % (cost % 3), 1)
        found = slots.find(key, now_ns=now_ns)
        if uses and found is not None:
            slots.take(found)
        slot = slots.give(
            (P1, tenant),
            key,
            cost_tokens=cost,
            rate_tokens_per_s=RATE,
            shares=Shares(1.0, 1.0),
            wait_ns=wait_ns,
            now_ns=now_ns,
            rng=rng,
        )
        slots.check_invariants()
        if slot is None:
            continue
        delay_ns = slot.told_ns - now_ns
        assert slot.opens_ns >= now_ns + max(500 * MS, wait_ns)
        assert slot.opens_ns <= slot.told_ns
        assert delay_ns <= min((slot.opens_ns - now_ns) * 11 // 10, 60 * S)
        assert slot.opens_ns >= last.get(tenant, 0)
        last[tenant] = slot.opens_ns


@settings(deadline=None, print_blob=True, max_examples=30)
@given(tenants=st.integers(1, 12), seed=st.integers(0, 99))
def test_slots_when_tenants_flood_together_then_no_second_gets_twice_its_share(
    tenants: int, seed: int
) -> None:
    """The sum over all queues is paced, whoever asks first."""
    slots, rng = slots_of(), random.Random(seed)
    names = [f"t{i}" for i in range(tenants)]
    opened: Counter[int] = Counter()
    for _ in range(400):
        slot = give(slots, rng.choice(names))
        if slot is not None:
            opened[slot.opens_ns // S] += 1_000
    assert max(opened.values()) <= 2 * RATE


def test_share_when_first_attempts_ask_for_all_then_is_the_least_and_when_for_none_the_most() -> (
    None
):
    """0.9 - load / rate, within its bounds; with no rate it is as if all were asked for."""
    config = ReturnConfig(share_min=0.25, share_max=0.5)
    shares = [return_share(x, rate_per_s=100.0, config=config) for x in (0, 30, 50, 60, 300)]
    assert shares == pytest.approx([0.5, 0.5, 0.4, 0.3, 0.25])
    assert return_share(0, rate_per_s=0.0, config=config) == 0.25


def test_load_when_first_attempts_come_and_go_then_follows_over_five_seconds() -> None:
    """A thousand tokens each half second are two thousand a second."""
    load = FreshLoad()
    for step in range(20):
        load.note(1_000, now_ns=step * 500 * MS)
    assert load.tokens_per_s(now_ns=10 * S) == 2_000
    assert load.tokens_per_s(now_ns=12 * S + 500 * MS) == 1_000
    assert load.tokens_per_s(now_ns=10_000 * S) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"share_min": 0.0},
        {"share_min": 0.6, "share_max": 0.5},
        {"share_max": 1.1},
        {"share_hoped": -0.1},
        {"wait_ns_min": 0},
        {"wait_ns_min": 2, "wait_ns_max": 1},
        {"grace_ns": -1},
        {"slots_max": 0},
        {"attempts_max": 0},
        {"budget_fraction": 1.5},
        {"budget_min_rps": -1.0},
        {"budget_window_s": 0},
        {"tenants_max": 0},
    ],
)
def test_config_when_out_of_range_then_the_error_says_what_is_allowed(
    wrong: dict[str, float],
) -> None:
    """One line that names what is allowed."""
    with pytest.raises(ConfigError, match="allowed: "):
        ReturnConfig(**wrong)  # type: ignore[arg-type]


def test_share_when_the_slot_is_farther_away_then_grows_with_the_square_of_its_delay() -> None:
    """Little in the next seconds, where the spike goes on, and more where it will be over."""
    shares = Shares(0.1, 0.5)
    assert [shares.at(x) for x in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 0.2, 0.5])


def test_shortness_when_overload_lasts_then_is_believed_and_when_it_ends_forgotten() -> None:
    """A spike of 20 s is a quarter, two minutes are nearly all, an hour later nothing."""
    shortness, seen = Shortness(), []
    for half_second in range(241):
        shortness.note(now_ns=half_second * S // 2)
        if half_second in (40, 240):
            seen.append(shortness.fraction)
    assert seen == pytest.approx([0.284, 0.866], abs=0.001)
    shortness.note(now_ns=3_600 * S)
    assert shortness.fraction < 1e-9
