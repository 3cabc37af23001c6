"""How an engine that is slower than its profile is found out, and what that changes."""

import pytest

from tests.core.support import (
    MS,
    ONE,
    FixedRng,
    S,
    account_with,
    admit,
    request,
    reservation,
    settle,
)
from tokenweir.core.admitter import Admitter
from tokenweir.core.guards import prefill_tokens_per_s, reading_ns
from tokenweir.core.policy import policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.request import Usage
from tokenweir.core.slowness import Slowness

READER = EngineProfile(
    name="reader",
    source="made up for these tests",
    step_ns=100 * MS,
    step_tokens_max=200,
    chunk_tokens_max=200,
    kv_tokens=10_000,
    sequences_max=100,
)


def told(*ratios: float, every_ns: int = S) -> Slowness:
    """Return what has seen first tokens take so many times what was predicted, one a second."""
    slowness = Slowness()
    for number, ratio in enumerate(ratios):
        slowness.note(int(ratio * S), predicted_ns=S, now_ns=number * every_ns)
    return slowness


def test_slowness_when_nothing_is_known_then_the_profile_is_believed() -> None:
    """No measurement, no correction."""
    assert told().ratio == 1.0


def test_slowness_when_first_tokens_take_twice_as_long_then_is_there_after_some_half_lives() -> (
    None
):
    """Half of the way in 10 s, nearly all of it in a minute."""
    assert told(*[2.0] * 11).ratio == pytest.approx(1.5, abs=0.01)
    assert told(*[2.0] * 61).ratio == pytest.approx(2.0, abs=0.02)


def test_slowness_when_samples_come_faster_then_takes_as_long() -> None:
    """Time counts, and not the number of requests."""
    assert told(*[2.0] * 1_001, every_ns=10 * MS).ratio == pytest.approx(1.5, abs=0.01)


def test_slowness_when_the_engine_is_faster_than_its_profile_then_is_one() -> None:
    """An engine with little to do answers sooner than one with much, which proves nothing."""
    assert told(*[0.3] * 100).ratio == 1.0


def test_slowness_when_one_request_is_lost_for_long_then_has_a_bound() -> None:
    """Neither one sample nor many make a promise of nothing."""
    assert told(1.0, 1_000.0).ratio < 1.4
    assert told(*[1_000.0] * 100).ratio == 3.0


def test_slowness_when_nothing_was_predicted_then_is_not_touched() -> None:
    """Without a profile there is nothing to compare with."""
    slowness = Slowness()
    slowness.note(S, predicted_ns=0, now_ns=0)
    assert slowness.ratio == 1.0


def test_reading_when_the_engine_is_slow_then_takes_as_much_longer() -> None:
    """Reading time and rate follow, step and all."""
    account = account_with(profile=READER)
    before_ns, rate = reading_ns(400, account, pairs=0.0), prefill_tokens_per_s(account)
    account.slowness = told(*[2.0] * 200)
    after_ns, slow_rate = reading_ns(400, account, pairs=0.0), prefill_tokens_per_s(account)
    assert before_ns is not None
    assert after_ns is not None
    assert rate is not None
    assert slow_rate is not None
    assert after_ns == pytest.approx(2 * before_ns, rel=0.001)
    assert slow_rate == pytest.approx(rate / 2, rel=0.001)


@pytest.mark.parametrize(("factor", "ratio"), [(0.5, 1.0), (1, 1.0), (2, 2.0)])
def test_admitter_when_first_tokens_come_then_learns_how_slow_the_engine_is(
    factor: float, ratio: float
) -> None:
    """100 tokens and a step are 150 ms by the profile; they come after so many times that."""
    admitter = Admitter(policy("predictive"), rng=FixedRng())
    admitter.add_replica(ONE, kv_tokens=10_000, profile=READER)
    for number in range(120):
        now_ns = number * S
        admit(admitter, request(str(number)), now_ns=now_ns)
        now_ns += int(factor * 150 * MS)
        admitter.first_token(reservation(str(number)), now_ns=now_ns)
        settle(admitter, str(number), Usage(100, 10), now_ns=now_ns)
    assert admitter._ledger.accounts[ONE].slowness.ratio == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(("name", "is_guarded"), [("predictive", True), ("token", False)])
def test_admitter_when_nobody_asks_how_fast_it_reads_then_nothing_is_predicted(
    name: str, is_guarded: bool
) -> None:
    """A policy without guards pays nothing for what only guards read."""
    admitter = Admitter(policy(name), rng=FixedRng())
    admitter.add_replica(ONE, kv_tokens=10_000, profile=READER)
    admit(admitter, request("a"), now_ns=0)
    assert bool(admitter._ledger._open[reservation("a")].predicted_first_ns) is is_guarded
