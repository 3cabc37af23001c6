"""The first token and the pace of those who are there, before one more may enter."""

import dataclasses
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import MS, ONE, account_with, ledger_with, reservation
from tokenweir.core.account import Account
from tokenweir.core.capacity import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.guards import (
    GuardConfig,
    first_token_room_ns,
    first_token_shortage,
    pace_shortage,
    prefill_tokens_per_s,
    reading_ns,
    unread_left,
)
from tokenweir.core.reasons import ReasonCode
from tokenweir.profiles import PROFILE_NAMES, profile

A100 = profile("8b-a100")
GUARDS = GuardConfig()
# A full step of 512 tokens: the computing arm, 6.43 ms + 512 x 66.8 us, is the longer one.
FULL_STEP_NS = 40_631_600
SMALL = Estimate(1_000, 1)


def loaded(
    *, unread: int = 0, decoding: int = 0, held_tokens: int = 0, has_profile: bool = True
) -> Account:
    """Build an account by its sums alone."""
    account = account_with(kv_tokens=421_000, profile=A100 if has_profile else None)
    if unread:
        account.reading.add(reservation("unread"), tokens=unread, pairs=0.0, now_ns=0)
    account.batch = None
    account.decoding = account.in_flight = decoding
    account.held_tokens = held_tokens
    account.reserved_tokens = 2 * held_tokens
    return account


# --- how fast prompts are read --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decoding", "held_tokens", "read_tokens", "step_ns"),
    [
        (0, 0, 512, FULL_STEP_NS + 4_400),
        (112, 100_000, 400, FULL_STEP_NS + 100_000 * 125 + 113 * 4_400),
        # However many decode, a token of the step is left for prompts.
        (512, 0, 1, FULL_STEP_NS + 512 * 4_400),
        (600, 0, 1, FULL_STEP_NS + 512 * 4_400),
    ],
)
def test_prefill_rate_when_an_engine_is_known_then_is_what_its_step_leaves(
    decoding: int, held_tokens: int, read_tokens: int, step_ns: int
) -> None:
    """What does not decode in a full step reads prompts, and context makes the step longer."""
    account = loaded(decoding=decoding, held_tokens=held_tokens)
    expected = read_tokens * 1_000_000_000 / step_ns
    assert prefill_tokens_per_s(account) == pytest.approx(expected, rel=1e-9)


def test_reading_when_the_engine_is_idle_then_is_its_share_and_a_step() -> None:
    """Who enters waits for the running step to end, and then for its own prompt."""
    assert reading_ns(0, loaded(), pairs=0) == FULL_STEP_NS
    whole = reading_ns(5 * 512, loaded(), pairs=0)
    assert whole == pytest.approx(FULL_STEP_NS + 5 * (FULL_STEP_NS + 4_400), abs=2)


def test_reading_when_the_engine_is_busy_then_takes_the_longer_step() -> None:
    """Context and sequences slow the step that is waited for, and the reading after it."""
    busy = loaded(decoding=112, held_tokens=100_000)
    step_ns = FULL_STEP_NS + 12_500_000 + 112 * 4_400
    assert reading_ns(400, busy, pairs=0) == pytest.approx(2 * step_ns + 4_400, abs=2)


def test_speed_when_no_profile_is_known_then_is_not_guessed() -> None:
    """Nobody measures how fast an unknown engine reads."""
    assert prefill_tokens_per_s(loaded(has_profile=False)) is None
    assert reading_ns(100, loaded(has_profile=False), pairs=0) is None


# --- first token ----------------------------------------------------------------------------------


def test_first_token_when_reading_is_fast_then_the_limit_is_its_time() -> None:
    """50 ms of an idle A100 are 629 tokens, more than the 512 of a step."""
    assert first_token_shortage(loaded(unread=629), GUARDS, now_ns=0) is None
    assert first_token_shortage(loaded(unread=630), GUARDS, now_ns=0) == Shortage(
        ReasonCode.OVERLOAD_PREFILL, 1, 630, 629
    )


def test_first_token_when_reading_is_slow_then_the_limit_is_a_step() -> None:
    """Less than a step's budget would leave a part of the step unused."""
    busy = loaded(unread=512, decoding=112, held_tokens=100_000)
    assert first_token_shortage(busy, GUARDS, now_ns=0) is None
    busy = loaded(unread=600, decoding=112, held_tokens=100_000)
    assert first_token_shortage(busy, GUARDS, now_ns=0) == Shortage(
        ReasonCode.OVERLOAD_PREFILL, 88, 600, 512
    )


def test_first_token_when_no_profile_is_known_then_a_careful_step_is_assumed() -> None:
    """An engine of which nothing is known is taken to read what engines come with."""
    assert first_token_shortage(loaded(unread=2_048, has_profile=False), GUARDS, now_ns=0) is None
    shut = Shortage(ReasonCode.OVERLOAD_PREFILL, 1, 2_049, 2_048)
    assert first_token_shortage(loaded(unread=2_049, has_profile=False), GUARDS, now_ns=0) == shut
    tight = GuardConfig(step_tokens=100)
    assert first_token_shortage(loaded(unread=101, has_profile=False), tight, now_ns=0) is not None


@settings(deadline=None, print_blob=True)
@given(
    name=st.none() | st.sampled_from(sorted(PROFILE_NAMES)),
    prefill_ns_max=st.integers(1, 10**9),
    step_tokens=st.integers(1, 10_000),
    decoding=st.integers(0, 1_000),
    held_tokens=st.integers(0, 10**6),
)
def test_first_token_when_nothing_is_unread_then_the_engine_is_open(
    name: str | None, prefill_ns_max: int, step_tokens: int, decoding: int, held_tokens: int
) -> None:
    """However large the newcomer: it can never find less before it."""
    account = account_with(profile=None if name is None else profile(name))
    account.decoding = account.in_flight = decoding
    account.held_tokens = held_tokens
    config = GuardConfig(prefill_ns_max=prefill_ns_max, step_tokens=step_tokens)
    assert first_token_shortage(account, config, now_ns=0) is None


@settings(deadline=None, print_blob=True)
@given(unread=st.integers(0, 5_000), freed=st.integers(0, 5_000), decoding=st.integers(0, 400))
def test_first_token_when_what_is_missing_was_read_then_opens_and_not_before(
    unread: int, freed: int, decoding: int
) -> None:
    """The shortage is exactly what has to be read first."""
    account = loaded(unread=unread, decoding=decoding)
    shortage = first_token_shortage(account, GUARDS, now_ns=0)
    missing = 0 if shortage is None else shortage.missing_tokens
    account = loaded(unread=max(0, unread - freed), decoding=decoding)
    assert (first_token_shortage(account, GUARDS, now_ns=0) is None) is (freed >= missing)


def test_first_token_when_a_prompt_is_half_read_then_counts_what_is_left() -> None:
    """Time stands for what engines do not tell; the guard opens when it says it will."""
    account = loaded(unread=5_120)
    shut = first_token_shortage(account, GUARDS, now_ns=0)
    assert shut is not None
    half = first_token_shortage(account, GUARDS, now_ns=5 * FULL_STEP_NS)
    assert half is not None
    assert half.used_tokens == pytest.approx(5_120 / 2, abs=2)
    room_ns = first_token_room_ns(account, GUARDS)
    assert room_ns is not None
    assert first_token_shortage(account, GUARDS, now_ns=room_ns - MS) is not None
    assert first_token_shortage(account, GUARDS, now_ns=room_ns) is None


def test_first_token_when_a_tenant_is_heavy_then_leaves_less_to_be_read() -> None:
    """Seven tenths of 100 ms of an A100, which are 1,258 tokens, but never less than a step."""
    wide = GuardConfig(prefill_ns_max=100 * MS)
    account = loaded(unread=1_000)
    assert first_token_shortage(account, wide, now_ns=0) is None
    shut = first_token_shortage(account, wide, now_ns=0, is_heavy=True)
    assert shut == Shortage(ReasonCode.OVERLOAD_PREFILL, 119, 1_000, 881)
    room_ns = first_token_room_ns(account, wide, is_heavy=True)
    assert room_ns is not None
    assert first_token_shortage(account, wide, now_ns=room_ns - MS, is_heavy=True) is not None
    assert first_token_shortage(account, wide, now_ns=room_ns, is_heavy=True) is None
    assert first_token_shortage(loaded(unread=512), GUARDS, now_ns=0, is_heavy=True) is None


def test_first_token_when_a_class_has_a_ceiling_then_room_comes_by_it_too() -> None:
    """Half of a step that may be left is reached later than the whole."""
    account = loaded(unread=1_000)
    room_ns = first_token_room_ns(account, GUARDS, ceiling_fraction=0.5)
    assert room_ns is not None
    early, late = (
        first_token_shortage(account, GUARDS, now_ns=now_ns, ceiling_fraction=0.5)
        for now_ns in (room_ns - MS, room_ns)
    )
    assert early is not None
    assert late is None


def test_first_token_when_nothing_is_known_of_speed_then_no_time_opens() -> None:
    """Without a profile a prompt counts until its first token."""
    account = loaded(unread=5_120, has_profile=False)
    assert first_token_room_ns(account, GUARDS) is None
    assert first_token_shortage(account, GUARDS, now_ns=3_600 * 10**9) is not None


def test_first_token_when_an_answer_is_not_streamed_then_its_progress_opens() -> None:
    """Nobody tells the first token of such an answer; what it has produced shows that it came."""
    ledger = ledger_with()
    account = ledger.accounts[ONE]
    ledger.reserve(reservation("a"), ONE, estimate=Estimate(2_049, 10), now_ns=0)
    assert first_token_shortage(account, GUARDS, now_ns=0) is not None
    ledger.progress(ONE, {reservation("a"): 0}, now_ns=1)
    assert first_token_shortage(account, GUARDS, now_ns=0) is not None
    ledger.progress(ONE, {reservation("a"): 1}, now_ns=2)
    assert first_token_shortage(account, GUARDS, now_ns=0) is None


def test_first_token_when_the_engine_limits_long_prompts_then_only_its_next_chunk_is_ahead() -> (
    None
):
    """Of 128 tokens a step a prompt of 30,000 is no more ahead of others than one of 128."""
    account = account_with(
        kv_tokens=421_000, profile=dataclasses.replace(A100, chunk_tokens_max=128)
    )
    account.reading.add(reservation("long"), tokens=30_000, pairs=30_000.0**2 / 2, now_ns=0)
    tokens, pairs = unread_left(account, now_ns=0)
    assert tokens == 128
    assert pairs == pytest.approx(30_000.0 * 128 / 2)
    assert first_token_shortage(account, GUARDS, now_ns=0) is None
    for number in range(4):
        account.reading.add(reservation(f"short{number}"), tokens=120, pairs=0.0, now_ns=0)
    assert unread_left(account, now_ns=0)[0] == 128 + 4 * 120
    assert first_token_shortage(account, GUARDS, now_ns=0) is None
    account.reading.add(reservation("cached"), tokens=0, pairs=0.0, now_ns=0)
    account.reading.add(reservation("another"), tokens=500, pairs=0.0, now_ns=0)
    shortage = first_token_shortage(account, GUARDS, now_ns=0)
    assert shortage is not None
    assert shortage.used_tokens == 128 + 4 * 120 + 128
    # When one is through is told; no clock tells it before.
    assert first_token_room_ns(account, GUARDS) is None


# --- pace -----------------------------------------------------------------------------------------


TIGHT = GuardConfig(pace_fraction=0.9)


def prompted(account: Account) -> Account:
    """Let four fifths of what is reserved be prompts, so that every step is full."""
    account.held_prompt_tokens = account.reserved_tokens * 4 // 5
    return account


def test_pace_when_context_is_long_then_the_step_with_one_more_counts() -> None:
    """With 243,000 tokens of context 225 requests take 71.9966 ms of 72, and 226 are too many."""
    almost = prompted(loaded(decoding=224, held_tokens=242_000))
    assert pace_shortage(SMALL, almost, config=TIGHT) is None
    full = prompted(loaded(decoding=225, held_tokens=242_000))
    mean_tokens = 2 * 242_000 // 225
    assert pace_shortage(SMALL, full, config=TIGHT) == Shortage(
        ReasonCode.OVERLOAD_PACE, mean_tokens, 225, 225
    )


def test_pace_when_the_newcomer_is_long_then_its_prompt_counts() -> None:
    """What it will make the others wait for is its own context."""
    account = prompted(loaded(decoding=224, held_tokens=242_000))
    assert pace_shortage(Estimate(2_000, 1), account, config=TIGHT) is not None


def test_pace_when_an_answer_outgrew_its_prediction_then_what_is_predicted_now_counts() -> None:
    """One that has produced all of its 100 tokens, and more may come, is not at its end."""
    ledger = ledger_with(kv_tokens=421_000, tracks_batch=True)
    account = ledger.accounts[ONE]
    account.profile = dataclasses.replace(A100, attention_ns=11.0)
    one = reservation("one")
    ledger.reserve(one, ONE, estimate=Estimate(1_000, 100), now_ns=0)
    ledger.first_token(one, now_ns=1)
    assert ledger.progress(ONE, {one: 110}, now_ns=2) == [one]
    long = Estimate(40_000, 10)
    # 8.8 s of attention, which it would bear alone had it nothing left.
    assert pace_shortage(long, account, config=GUARDS) is not None
    ledger.lengthen(one, remaining=500)
    assert pace_shortage(long, account, config=GUARDS) is None


def test_pace_when_prompts_are_cached_then_a_step_reads_less_of_them() -> None:
    """What a prefix cache has of those that run, and of the newcomer, fills no step."""
    limit = GuardConfig(pace_fraction=0.4)
    account = prompted(loaded(decoding=100, held_tokens=100_000))
    newcomer = Estimate(1_000, 10, cached_tokens=900)
    assert pace_shortage(newcomer, account, config=limit) is not None
    account.cached_prompt_tokens = account.held_prompt_tokens * 9 // 10
    assert pace_shortage(newcomer, account, config=limit) is None
    # Half as much is not enough, and the newcomer's own part counts where it is large.
    account.cached_prompt_tokens = account.held_prompt_tokens // 2
    assert pace_shortage(newcomer, account, config=limit) is not None


def test_pace_when_the_newcomer_is_cached_then_only_its_rest_is_read() -> None:
    """Beside one that reads nothing, a prompt of 60,000 passes when nearly all of it is cached."""
    account = loaded(decoding=30, held_tokens=3_000)
    account.cached_prompt_tokens = account.held_prompt_tokens
    limit = GuardConfig(pace_fraction=0.5)
    assert pace_shortage(Estimate(60_000, 10, cached_tokens=59_000), account, config=limit) is None
    assert pace_shortage(Estimate(60_000, 10), account, config=limit) is not None


def test_pace_when_requests_bring_few_prompts_then_a_step_is_shorter_than_its_budget() -> None:
    """An engine that mostly decodes takes more requests than one that always reads."""
    mostly_reads = prompted(loaded(decoding=230, held_tokens=242_000))
    mostly_decodes = loaded(decoding=230, held_tokens=242_000)
    assert pace_shortage(SMALL, mostly_reads, config=TIGHT) is not None
    assert pace_shortage(SMALL, mostly_decodes, config=TIGHT) is None


def test_pace_when_a_tenant_holds_too_much_then_a_seat_is_left_to_others() -> None:
    """Of 256 seats it may take 255, and what it would have to wait for is told the same way."""
    heavy = pace_shortage(Estimate(1, 1), loaded(decoding=255), config=GUARDS, is_heavy=True)
    assert heavy == Shortage(ReasonCode.OVERLOAD_PACE, 1, 255, 255)
    assert pace_shortage(Estimate(1, 1), loaded(decoding=254), config=GUARDS, is_heavy=True) is None


def test_pace_when_all_seats_are_taken_then_is_short_at_any_speed() -> None:
    """What an engine has no seat for waits in its line, beyond order and cancellation."""
    assert pace_shortage(Estimate(1, 1), loaded(decoding=255), config=GUARDS) is None
    assert pace_shortage(Estimate(1, 1), loaded(decoding=256), config=GUARDS) == Shortage(
        ReasonCode.OVERLOAD_PACE, 1, 256, 256
    )


def test_pace_when_nobody_is_served_then_one_may_always_enter() -> None:
    """An engine too slow for the bound serves one at a time rather than nobody for ever."""
    slow = dataclasses.replace(A100, step_ns=10_000 * MS)
    account = account_with(kv_tokens=421_000, profile=slow)
    assert pace_shortage(SMALL, account, config=GUARDS) is None
    account.in_flight = 1
    assert pace_shortage(SMALL, account, config=GUARDS) is not None


def test_pace_when_neither_bound_nor_profile_is_known_then_is_not_tested() -> None:
    """Without a bound every pace is good; without a profile none can be told."""
    full = loaded(decoding=256)
    assert pace_shortage(SMALL, full, config=GuardConfig(tpot_ns=None)) is None
    unknown = loaded(decoding=256, has_profile=False)
    assert pace_shortage(SMALL, unknown, config=GUARDS) is None


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"prefill_ns_max": 0}, "prefill_ns_max 0 is not allowed, allowed: above 0"),
        ({"step_tokens": 0}, "step_tokens 0 is not allowed, allowed: 1 or more"),
        ({"tpot_ns": 0}, "tpot_ns 0 is not allowed, allowed: above 0, or none"),
        ({"heavy_prefill_fraction": 0.0}, "heavy_prefill_fraction 0.0 is not allowed, allowed: "),
        ({"light_pool_ratio": 0.9}, "light_pool_ratio 0.9 is not allowed, allowed: 1 to 1.1"),
        ({"light_pool_ratio": 1.2}, "light_pool_ratio 1.2 is not allowed, allowed: 1 to 1.1"),
        ({"slo_fraction": 0.0}, "slo_fraction 0.0 is not allowed, allowed: above 0 up to 1"),
        ({"slo_fraction": 1.1}, "slo_fraction 1.1 is not allowed, allowed: above 0 up to 1"),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    setting: dict[str, Any], message: str
) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    with pytest.raises(ConfigError, match=message):
        GuardConfig(**setting)


def test_config_when_at_its_bounds_then_is_allowed() -> None:
    """The least and the largest values belong to what is allowed."""
    GuardConfig(prefill_ns_max=1, step_tokens=1, tpot_ns=1, slo_fraction=1.0)
    GuardConfig(tpot_ns=None)


def test_reading_when_prompts_are_long_then_their_pairs_add_up() -> None:
    """Each pair of prompt token and context token has its price."""
    account = loaded()
    bare, long = (reading_ns(1_000, account, pairs=pairs) for pairs in (0, 1_000_000))
    assert bare is not None
    assert long == bare + 3_400_000
