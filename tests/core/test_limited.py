"""Outer limit and headroom at work in an admitter: what they hear, and what they hold back."""

import dataclasses
from collections.abc import Iterable

import pytest

from tests.core.support import (
    MS,
    ONE,
    FixedRng,
    S,
    account_with,
    admit,
    admitter_with,
    enqueue,
    request,
    reservation,
    settle,
)
from tokenweir.core.account import Account
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.aimd import AimdConfig, AimdLimit
from tokenweir.core.capacity.engine_queue import EngineQueue
from tokenweir.core.capacity.future_peak import FuturePeak
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.outer_limit import limit_of, limit_shortage
from tokenweir.core.policy import policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.signals import Signals

SMALL = EngineProfile(
    name="small",
    source="made up for these tests",
    step_ns=10 * MS,
    step_tokens_max=400,
    chunk_tokens_max=400,
    kv_tokens=100_000,
    sequences_max=50,
)


def limited(name: str = "aimd", *, kv_tokens: int = 100_000) -> Admitter:
    """Build an admitter whose replica has an outer limit."""
    admitter = Admitter(policy(name), rng=FixedRng())
    admitter.add_replica(ONE, kv_tokens=kv_tokens, profile=SMALL)
    return admitter


def account_of(admitter: Admitter) -> Account:
    """Return the only replica's account."""
    return admitter._ledger.accounts[ONE]


def limit_in(admitter: Admitter) -> AimdLimit:
    """Return the only replica's outer limit."""
    limit = account_of(admitter).limit
    assert limit is not None
    return limit


def fill(admitter: Admitter, names: Iterable[str], *, now_ns: int = 0) -> None:
    """Let requests for 100 tokens each in."""
    for name in names:
        admit(admitter, request(name), now_ns=now_ns)


# --- what the limit hears -------------------------------------------------------------------------


def test_limit_when_first_tokens_come_late_then_shrinks() -> None:
    """0.9 s from dispatch to first token are over 0.8 of the SLO of a second."""
    admitter = limited()
    fill(admitter, "abcdefghij")
    for name in "abcdefghij":
        admitter.first_token(reservation(name), now_ns=900 * MS)
    admitter.advance(now_ns=S)
    assert limit_in(admitter).in_flight_limit == 9


def test_limit_when_requests_are_cancelled_without_an_answer_then_shrinks() -> None:
    """Clients that left after 9 s have not seen a first token in time."""
    admitter = limited()
    fill(admitter, "abcdefghij")
    for name in "abcdefghij":
        settle(admitter, name, Usage(100, 0), outcome=Outcome.CANCELLED, now_ns=9 * S)
    admitter.advance(now_ns=11 * S)
    assert limit_in(admitter).breaches == 1


def test_limit_when_whole_answers_take_long_then_it_is_no_signal() -> None:
    """An answer that is not streamed tells its end only, which is its length."""
    admitter = limited()
    fill(admitter, "abcdefghij")
    for name in "abcdefghij":
        settle(admitter, name, Usage(100, 90), now_ns=9 * S)
    admitter.advance(now_ns=10 * S)
    assert limit_in(admitter).breaches == 0


def test_limit_when_streams_fall_behind_their_pace_then_shrinks() -> None:
    """Ten tokens in a second are 100 ms each, over nine tenths of 80 ms."""
    admitter = limited()
    fill(admitter, "abcdefghij")
    for second, tokens in ((1, 1), (2, 11)):
        progress = {reservation(name): tokens for name in "abcdefghij"}
        admitter.progress(ONE, progress, now_ns=second * S)
    admitter.advance(now_ns=2 * S)
    assert limit_in(admitter).breaches == 1


@pytest.mark.parametrize("name", ["aimd", "predictive"])
def test_limit_when_the_engine_preempts_then_shrinks(name: str) -> None:
    """Under every policy that has a limit."""
    admitter = limited(name)
    fill(admitter, "abcd")
    for total in (5, 6):
        admitter.observe(Signals(ONE, total * S, preemptions_total=total), now_ns=total * S)
        admitter.advance(now_ns=total * S)
    assert limit_in(admitter).breaches == 1


# --- what the limit holds back --------------------------------------------------------------------


def with_limit(*, in_flight_max: int, in_flight: int, kv_limit: float = 1.0) -> Account:
    """Build an account of ten-token requests under a limit."""
    account = account_with(kv_tokens=1_000, reserved=((10, 10),) * in_flight)
    account.limit = AimdLimit(AimdConfig(in_flight_max=in_flight_max))
    account.limit.kv_limit_fraction = kv_limit
    return account


def test_shortage_when_as_many_run_as_allowed_then_one_has_to_leave() -> None:
    """A place is worth a mean reservation."""
    assert limit_shortage(Estimate(10, 10), with_limit(in_flight_max=6, in_flight=5)) is None
    shortage = limit_shortage(Estimate(10, 10), with_limit(in_flight_max=5, in_flight=5))
    assert shortage is not None
    assert shortage.reason is ReasonCode.OVERLOAD_CONCURRENCY
    assert (shortage.missing_tokens, shortage.used_tokens, shortage.limit_tokens) == (20, 5, 5)


def test_shortage_when_a_class_has_a_ceiling_then_its_share_of_the_limit_counts() -> None:
    """Half of ten places are five."""
    account = with_limit(in_flight_max=10, in_flight=5)
    assert limit_shortage(Estimate(1, 1), account) is None
    assert limit_shortage(Estimate(1, 1), account, ceiling_fraction=0.5) is not None


def test_shortage_when_the_share_of_the_pool_is_used_then_tokens_are_missing() -> None:
    """50 held and 60 new tokens are 10 more than a tenth of the pool."""
    account = with_limit(in_flight_max=100, in_flight=5, kv_limit=0.1)
    assert limit_shortage(Estimate(50, 999), account) is None
    shortage = limit_shortage(Estimate(60, 1), account)
    assert shortage is not None
    assert (shortage.reason, shortage.missing_tokens) == (ReasonCode.OVERLOAD_KV, 10)


def test_shortage_when_few_run_then_the_share_of_the_pool_is_not_asked() -> None:
    """Up to the minimum everything may enter, or a large request would wait for ever."""
    assert (
        limit_shortage(Estimate(900, 1), with_limit(in_flight_max=9, in_flight=3, kv_limit=0.0))
        is None
    )


def test_shortage_when_there_is_no_limit_then_is_none() -> None:
    """A policy without it has nothing to ask."""
    assert limit_shortage(Estimate(1, 1), account_with(reserved=((10, 10),) * 50)) is None


def test_arrive_when_the_limit_is_reached_then_waits() -> None:
    """The seats of the engine are the limit from the start."""
    admitter = limited()
    fill(admitter, [str(number) for number in range(50)])
    enqueue(admitter, request("late"))


def limit_for(name: str) -> AimdConfig:
    """Return the limit of a policy on the small engine, with the bounds that come by default."""
    limit = limit_of(
        AimdConfig(),
        policy=policy(name),
        profile=SMALL,
        first_token_slo_ns=None,
        tpot_ns=AimdConfig().tpot_ns,
    )
    assert limit is not None
    return limit


def test_limit_of_when_a_policy_is_not_limited_then_is_none() -> None:
    """Nothing is tracked that nobody asks."""
    assert (
        limit_of(
            AimdConfig(),
            policy=policy("ledger"),
            profile=SMALL,
            first_token_slo_ns=None,
            tpot_ns=None,
        )
        is None
    )


def test_limit_of_when_predictions_are_asked_first_then_is_wider_than_these() -> None:
    """What was aimed at must not be cut."""
    inner = limit_for("aimd")
    outer = limit_for("predictive")
    assert inner.in_flight_max == outer.in_flight_max == 50
    assert (inner.pace_breach, inner.kv_breach) == (0.9, 0.97)
    assert (outer.pace_breach, outer.kv_breach) == (1.1, 1.0)


# --- headroom -------------------------------------------------------------------------------------


def test_peak_when_the_engine_preempts_then_less_of_the_pool_is_filled() -> None:
    """Two hundredths of the pool after a preemption."""
    account = account_with(kv_tokens=10_000)
    free = FuturePeak().free_tokens(account)
    account.headroom.note_preemptions(0, now_ns=0)
    account.headroom.note_preemptions(1, now_ns=S)
    assert FuturePeak().free_tokens(account) == free - 200


def test_peak_when_predictions_were_wrong_then_a_small_pool_keeps_more() -> None:
    """Errors of 100 tokens: a hundred requests keep what they kept, ten keep three tenths more."""
    few = account_with(kv_tokens=10_000, reserved=((1, 1),) * 10)
    many = account_with(kv_tokens=100_000, reserved=((1, 1),) * 100)
    for account in (few, many):
        for number in range(200):
            account.headroom.note_end(reserved_tokens=200, used_tokens=200 + 100 * (number % 2))
    peak = FuturePeak()
    assert peak.free_tokens(many) == 97_000 - peak.used_tokens(many)
    assert peak.free_tokens(few) == pytest.approx(10_000 - 316 - peak.used_tokens(few), abs=1)


def test_headroom_when_answers_end_then_learns_from_whole_ones_only() -> None:
    """A cancelled answer was cut short and says nothing of what was predicted."""
    admitter = limited("predictive")
    for number in range(50):
        fill(admitter, [str(number)])
        settle(admitter, str(number), Usage(100, 5_000))
    # Until then lengths were guessed, and guesses are no predictions.
    assert account_of(admitter).headroom.spread_fraction(10, kv_tokens=100_000) == 0
    fill(admitter, "ab")
    settle(admitter, "a", Usage(100, 5_000), outcome=Outcome.CANCELLED, now_ns=S)
    assert account_of(admitter).headroom.spread_fraction(10, kv_tokens=100_000) == 0
    settle(admitter, "b", Usage(100, 5_000), now_ns=S)
    assert account_of(admitter).headroom.spread_fraction(10, kv_tokens=100_000) > 0


# --- the engine's own line ------------------------------------------------------------------------


def test_engine_queue_when_the_engine_tells_then_counts_what_came_since() -> None:
    """Three wait in the engine and two were sent since: five of five."""
    admitter = admitter_with("engine_queue", kv_tokens=100_000)
    admitter.observe(Signals(ONE, 0, waiting=3), now_ns=0)
    fill(admitter, "ab")
    account = account_of(admitter)
    assert EngineQueue(waiting_max=6).shortage(Estimate(1, 1), account) is None
    shortage = EngineQueue(waiting_max=5).shortage(Estimate(1, 1), account)
    assert shortage is not None
    assert (shortage.used_tokens, shortage.limit_tokens) == (5, 5)
    admitter.observe(Signals(ONE, 1, waiting=0), now_ns=1)
    assert EngineQueue(waiting_max=1).shortage(Estimate(1, 1), account) is None


def test_engine_queue_when_the_engine_tells_nothing_then_counts_what_has_no_first_token() -> None:
    """Whoever reads its prompt is counted too, since nobody knows better."""
    admitter = admitter_with("engine_queue", kv_tokens=100_000)
    fill(admitter, "abc")
    admitter.first_token(reservation("a"), now_ns=0)
    assert account_of(admitter).engine_waiting == 2


def test_engine_queue_when_its_bound_is_out_of_range_then_refuses() -> None:
    """A bound of nothing would serve nobody."""
    with pytest.raises(ConfigError, match="waiting_max 0 is not allowed, allowed: 1 or more"):
        EngineQueue(waiting_max=0)


def test_config_when_slos_are_set_then_the_limit_has_them() -> None:
    """The bounds of queue and guards are those of the limit."""
    config = AdmitterConfig()
    config = dataclasses.replace(
        config,
        queue=dataclasses.replace(config.queue, first_token_slo_ns=3 * S),
        guards=dataclasses.replace(config.guards, tpot_ns=None),
    )
    admitter = Admitter(policy("predictive"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    limit = limit_in(admitter)
    assert (limit._config.first_token_slo_ns, limit._config.tpot_ns) == (3 * S, None)
