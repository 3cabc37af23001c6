"""What the ledger promises call by call; its properties over all orders are tested beside."""

import pytest

from tests.core.support import MS, ONE, TWO, S, ledger_with, reservation
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.ledger import Ledger, LedgerConfig, Settlement
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.reservation import State
from tokenweir.core.signals import Signals

R = reservation("r")
COST = Estimate(100, 50)
USED = Usage(100, 20)


def reading(ledger: Ledger) -> tuple[int, int]:
    """Return the prompt tokens that are unread, and the requests that decode."""
    account = ledger.accounts[ONE]
    return account.prefill_tokens, account.decoding


def sums(ledger: Ledger) -> tuple[int, int, int, int, int]:
    """Return what the one account adds up to."""
    account = ledger.accounts[ONE]
    return (
        account.in_flight,
        account.reserved_tokens,
        account.held_tokens,
        account.held_prompt_tokens,
        account.draining_tokens,
    )


@pytest.fixture
def ledger() -> Ledger:
    """A ledger with one open reservation of 150 tokens."""
    built = ledger_with()
    built.reserve(R, ONE, estimate=COST, now_ns=0)
    return built


def test_reserve_when_open_then_counts_permit_estimate_and_prompt(ledger: Ledger) -> None:
    """A hold takes a permit and its whole estimate; KV is held by the prompt only."""
    assert sums(ledger) == (1, 150, 100, 100, 0)
    assert R in ledger
    assert len(ledger) == 1


def test_reserve_when_open_already_then_raises_and_changes_nothing(ledger: Ledger) -> None:
    """An id holds once."""
    before = sums(ledger)
    with pytest.raises(ContractError, match="reservation r is open already"):
        ledger.reserve(R, ONE, estimate=COST, now_ns=1)
    assert sums(ledger) == before


def test_reserve_when_closed_before_then_raises_and_changes_nothing(ledger: Ledger) -> None:
    """An id is used once, so a late settle cannot hit another request."""
    ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
    with pytest.raises(ContractError, match="an id is used once"):
        ledger.reserve(R, ONE, estimate=COST, now_ns=2)
    assert sums(ledger) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("outcome", [Outcome.FINISHED, Outcome.LENGTH])
def test_settle_when_finished_then_everything_returns_at_once(
    ledger: Ledger, outcome: Outcome
) -> None:
    """The engine frees KV itself at a regular end, so nothing drains."""
    settlement = ledger.settle(R, USED, outcome=outcome, now_ns=1)
    assert settlement == Settlement(R, 150, USED, outcome)
    assert settlement.returned_tokens == 30
    assert settlement.over_reservation_ratio == 150 / 120
    assert sums(ledger) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.ERROR])
def test_settle_when_early_then_kv_drains_for_the_abort_time(
    ledger: Ledger, outcome: Outcome
) -> None:
    """Permit and promise return at once, what the engine may still hold only later."""
    ledger.progress(ONE, {R: 7}, now_ns=1)
    ledger.settle(R, USED, outcome=outcome, now_ns=10)
    assert sums(ledger) == (0, 0, 0, 0, 107)
    assert ledger.next_wakeup_ns() == 10 + 500 * MS
    assert not ledger.drain(now_ns=9 + 500 * MS)
    assert ledger.drain(now_ns=10 + 500 * MS)
    assert sums(ledger) == (0, 0, 0, 0, 0)
    assert ledger.next_wakeup_ns() is None


def test_drain_when_several_were_cancelled_then_each_ends_in_its_own_time(ledger: Ledger) -> None:
    """KV of a later cancel neither delays nor hastens that of an earlier one."""
    other = reservation("other")
    ledger.reserve(other, ONE, estimate=Estimate(30, 1), now_ns=0)
    ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=0)
    ledger.settle(other, USED, outcome=Outcome.ERROR, now_ns=100 * MS)
    draining = []
    for now_ns in (500 * MS - 1, 500 * MS, 600 * MS - 1, 600 * MS):
        ledger.drain(now_ns=now_ns)
        draining.append((sums(ledger)[-1], ledger.next_wakeup_ns()))
    assert draining == [(130, 500 * MS), (30, 600 * MS), (30, 600 * MS), (0, None)]


def test_settle_when_early_without_abort_time_then_nothing_drains() -> None:
    """Where the engine forgets at once, so does the ledger."""
    ledger = ledger_with(LedgerConfig(abort_time_ns=0))
    ledger.reserve(R, ONE, estimate=COST, now_ns=0)
    ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=1)
    assert sums(ledger) == (0, 0, 0, 0, 0)


def test_settle_when_overrun_then_more_is_charged_than_was_held(ledger: Ledger) -> None:
    """Real usage may exceed the estimate; the hold returns, the difference is negative."""
    settlement = ledger.settle(R, Usage(100, 500), outcome=Outcome.FINISHED, now_ns=1)
    assert settlement.returned_tokens == -450
    assert sums(ledger) == (0, 0, 0, 0, 0)


def test_settle_when_nothing_was_used_then_ratio_is_infinite(ledger: Ledger) -> None:
    """A usage of zero is a usage, not a division error."""
    settlement = ledger.settle(R, Usage(0, 0), outcome=Outcome.ERROR, now_ns=1)
    assert settlement.over_reservation_ratio == float("inf")


def test_settle_when_repeated_with_equal_usage_then_answers_the_same(ledger: Ledger) -> None:
    """A repeated settle is harmless, whatever outcome the second caller saw."""
    first = ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
    assert ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=2) is first
    assert sums(ledger) == (0, 0, 0, 0, 0)


def test_settle_when_repeated_with_other_usage_then_raises(ledger: Ledger) -> None:
    """Two different charges for one request are a bug, and the first one stands."""
    first = ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
    with pytest.raises(ContractError, match="settled with 120 tokens"):
        ledger.settle(R, Usage(100, 21), outcome=Outcome.FINISHED, now_ns=2)
    assert ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=3) is first


def test_settle_when_released_or_unknown_then_raises(ledger: Ledger) -> None:
    """What never ran cannot have been used."""
    ledger.release(R, now_ns=0)
    with pytest.raises(ContractError, match="r was released"):
        ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
    with pytest.raises(ContractError, match="stranger is unknown"):
        ledger.settle(reservation("stranger"), USED, outcome=Outcome.FINISHED, now_ns=1)


def test_release_when_never_started_then_everything_returns(ledger: Ledger) -> None:
    """A request that never reached an engine leaves nothing, and nothing drains."""
    ledger.release(R, now_ns=0)
    assert sums(ledger) == (0, 0, 0, 0, 0)
    with pytest.raises(ContractError, match="it cannot be released"):
        ledger.release(R, now_ns=0)


def test_release_when_streaming_then_raises_and_changes_nothing(ledger: Ledger) -> None:
    """What was begun must be settled, or its usage would be lost."""
    ledger.first_token(R, now_ns=0)
    with pytest.raises(ContractError, match="release is not possible"):
        ledger.release(R, now_ns=0)
    assert sums(ledger) == (1, 150, 100, 100, 0)


def test_first_token_when_repeated_or_late_then_changes_nothing(ledger: Ledger) -> None:
    """A stream may report its start twice, or after its end."""
    ledger.first_token(R, now_ns=0)
    ledger.first_token(R, now_ns=0)
    ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
    ledger.first_token(R, now_ns=0)
    assert sums(ledger) == (0, 0, 0, 0, 0)


def test_progress_when_reported_then_held_grows_and_never_shrinks(ledger: Ledger) -> None:
    """A report that arrives late does not take back what the engine holds."""
    ledger.progress(ONE, {R: 30}, now_ns=1)
    ledger.progress(ONE, {R: 10}, now_ns=2)
    assert sums(ledger) == (1, 150, 130, 100, 0)


def test_first_token_when_it_comes_then_the_prompt_is_read_once(ledger: Ledger) -> None:
    """A prompt is unread until the first token, whoever tells of it first and how often."""
    assert reading(ledger) == (100, 0)
    ledger.progress(ONE, {R: 0}, now_ns=1)
    assert reading(ledger) == (100, 0)
    ledger.first_token(R, now_ns=0)
    ledger.progress(ONE, {R: 5}, now_ns=2)
    ledger.first_token(R, now_ns=0)
    assert reading(ledger) == (0, 1)


def test_progress_when_nobody_told_the_first_token_then_the_prompt_is_read(ledger: Ledger) -> None:
    """Of an answer that is not streamed only its progress is seen."""
    ledger.progress(ONE, {R: 5}, now_ns=1)
    assert reading(ledger) == (0, 1)
    ledger.first_token(R, now_ns=0)
    assert reading(ledger) == (0, 1)


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("end", ["settle", "settle_early", "release", "lose"])
def test_end_when_read_or_unread_then_neither_prompt_nor_place_stays(
    is_begun: bool, end: str
) -> None:
    """Every end takes back what its request counted for, in the sums and in the batch."""
    ledger = ledger_with(tracks_batch=True)
    ledger.reserve(R, ONE, estimate=COST, now_ns=0)
    if is_begun:
        # Not the first token: what has begun to answer cannot be released.
        ledger.progress(ONE, {R: 5}, now_ns=0)
    match end:
        case "settle":
            ledger.settle(R, USED, outcome=Outcome.FINISHED, now_ns=1)
        case "settle_early":
            ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=1)
        case "release":
            ledger.release(R, now_ns=0)
        case "lose":
            ledger.expire(now_ns=60 * S)
    assert reading(ledger) == (0, 0)
    batch = ledger.accounts[ONE].batch
    assert batch is not None
    assert len(batch) == batch.peak_tokens() == 0
    ledger.check_invariants()


def test_progress_when_the_prediction_is_reached_then_says_so_until_it_is_longer() -> None:
    """What has produced all that was predicted is named, so that it can be predicted again."""
    ledger = ledger_with(tracks_batch=True)
    ledger.reserve(R, ONE, estimate=COST, now_ns=0)
    batch = ledger.accounts[ONE].batch
    assert batch is not None
    assert ledger.progress(ONE, {R: 49}, now_ns=1) == []
    assert ledger.progress(ONE, {R: 50}, now_ns=2) == [R]
    assert ledger.progress(ONE, {R: 50}, now_ns=3) == []
    assert ledger.progress(ONE, {R: 60}, now_ns=4) == [R]
    assert batch.peak_tokens() == 160
    ledger.lengthen(R, remaining=40)
    assert batch.peak_tokens() == 200
    assert ledger.progress(ONE, {R: 99}, now_ns=5) == []


def test_lengthen_when_closed_or_not_tracked_then_changes_nothing(ledger: Ledger) -> None:
    """A prediction that comes after the end, or that nobody needs, does no harm."""
    ledger.lengthen(R, remaining=10)
    ledger.lengthen(reservation("stranger"), remaining=10)
    assert sums(ledger) == (1, 150, 100, 100, 0)


def test_progress_when_of_another_replica_then_changes_nothing(ledger: Ledger) -> None:
    """A replica speaks of its own streams only, and renews no other leases."""
    ledger.add_replica(TWO, kv_tokens=1_000, calibration=CalibrationConfig())
    ledger.progress(TWO, {R: 30, reservation("stranger"): 5}, now_ns=1)
    assert sums(ledger) == (1, 150, 100, 100, 0)
    assert ledger.next_wakeup_ns() == 10 * S


def test_progress_when_replica_is_unknown_then_raises(ledger: Ledger) -> None:
    """A replica that was never added is a broken contract, not a missing key."""
    with pytest.raises(ContractError, match="replica two is unknown"):
        ledger.progress(TWO, {R: 30}, now_ns=1)


def test_lease_when_renewed_then_a_long_stream_is_never_reaped(ledger: Ledger) -> None:
    """Only silence ends a lease, not age."""
    for second in range(1, 100):
        assert ledger.expire(now_ns=second * S) == []
        ledger.progress(ONE, {R: second}, now_ns=second * S)
    assert ledger.expire(now_ns=109 * S - 1) == []
    assert [lost.reservation_id for lost in ledger.expire(now_ns=109 * S)] == [R]
    assert sums(ledger) == (0, 0, 0, 0, 0)


def test_lease_when_lost_then_late_settle_charges_and_releases_nothing(ledger: Ledger) -> None:
    """An owner thought dead is charged once more, for use, and its hold returned once only."""
    ledger.expire(now_ns=10 * S)
    late = ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=11 * S)
    assert late.is_late
    assert late.usage == USED
    assert sums(ledger) == (0, 0, 0, 0, 0)
    assert ledger.settle(R, USED, outcome=Outcome.CANCELLED, now_ns=12 * S) is late


def test_lease_when_none_then_nothing_is_ever_lost() -> None:
    """Where owner and ledger die together, time alone takes nothing back."""
    ledger = ledger_with(LedgerConfig(lease_ns=None))
    ledger.reserve(R, ONE, estimate=COST, now_ns=0)
    assert ledger.next_wakeup_ns() is None
    assert ledger.expire(now_ns=10**18) == []


def test_leases_when_lost_together_then_come_back_oldest_first(ledger: Ledger) -> None:
    """The order of effects follows the order of renewals."""
    other = reservation("other")
    ledger.reserve(other, ONE, estimate=COST, now_ns=1)
    ledger.progress(ONE, {R: 1}, now_ns=2)
    assert [lost.reservation_id for lost in ledger.expire(now_ns=60 * S)] == [other, R]


def test_closed_when_more_than_the_bound_then_the_oldest_is_forgotten() -> None:
    """The memory of what is closed has a size; a settle from beyond it is unknown."""
    ledger = ledger_with(LedgerConfig(closed_max=2))
    for name in ("a", "b", "c"):
        ledger.reserve(reservation(name), ONE, estimate=COST, now_ns=0)
        ledger.settle(reservation(name), USED, outcome=Outcome.FINISHED, now_ns=0)
    with pytest.raises(ContractError, match="a is unknown"):
        ledger.settle(reservation("a"), USED, outcome=Outcome.FINISHED, now_ns=0)
    assert ledger.settle(reservation("b"), USED, outcome=Outcome.FINISHED, now_ns=0).usage == USED


def test_expired_when_more_than_the_bound_then_the_oldest_is_forgotten() -> None:
    """Lost leases whose owners never return do not pile up."""
    ledger = ledger_with(LedgerConfig(closed_max=2))
    for name in ("a", "b", "c"):
        ledger.reserve(reservation(name), ONE, estimate=COST, now_ns=0)
    assert len(ledger.expire(now_ns=10 * S)) == 3
    with pytest.raises(ContractError, match="a is unknown"):
        ledger.settle(reservation("a"), USED, outcome=Outcome.FINISHED, now_ns=11 * S)
    assert ledger.settle(reservation("b"), USED, outcome=Outcome.ERROR, now_ns=11 * S).is_late


def test_add_replica_when_there_already_then_raises(ledger: Ledger) -> None:
    """A second account would forget what the first one holds."""
    with pytest.raises(ContractError, match="replica one has an account already"):
        ledger.add_replica(ONE, kv_tokens=5, calibration=CalibrationConfig())
    assert sums(ledger) == (1, 150, 100, 100, 0)


def test_open_on_when_asked_then_lists_the_replica_only(ledger: Ledger) -> None:
    """A replica's reservations can be listed."""
    assert [r.reservation_id for r in ledger.open_on(ONE)] == [R]
    assert list(ledger.open_on(TWO)) == []


@pytest.mark.parametrize(
    "field",
    [
        "in_flight",
        "reserved_tokens",
        "held_tokens",
        "held_prompt_tokens",
        "cached_prompt_tokens",
        "decoding",
        "draining_tokens",
    ],
)
def test_check_invariants_when_an_account_is_bent_then_raises(ledger: Ledger, field: str) -> None:
    """INV-LEDGER-1 is recounted, and every sum is looked at."""
    account = ledger.accounts[ONE]
    setattr(account, field, getattr(account, field) + 1)
    with pytest.raises(InvariantError, match="account of one says"):
        ledger.check_invariants()


def test_check_invariants_when_what_is_unread_is_bent_then_raises(ledger: Ledger) -> None:
    """INV-LEDGER-1 for prompts that have still to be read."""
    account = ledger.accounts[ONE]
    account.reading.add(reservation("nobody's"), tokens=1, pairs=0.0, now_ns=0)
    with pytest.raises(InvariantError, match="account of one says"):
        ledger.check_invariants()


def test_check_invariants_when_the_batch_is_bent_then_raises() -> None:
    """INV-LEDGER-4: a request that the peak has forgotten, or knows too well, is found."""
    ledger = ledger_with(tracks_batch=True)
    ledger.reserve(R, ONE, estimate=COST, now_ns=0)
    batch = ledger.accounts[ONE].batch
    assert batch is not None
    batch.produce(R, 1)
    with pytest.raises(InvariantError, match=r"batch of one says .1 requests, 101 held"):
        ledger.check_invariants()
    batch.remove(R)
    with pytest.raises(InvariantError, match=r"batch of one says .0 requests, 0 held"):
        ledger.check_invariants()


def test_check_invariants_when_an_open_one_holds_nothing_then_raises(ledger: Ledger) -> None:
    """What is listed as open is in a state that holds."""
    (open_one,) = ledger.open_on(ONE)
    open_one.state = State.SETTLED
    with pytest.raises(InvariantError, match="holds nothing"):
        ledger.check_invariants()


def test_calibrate_when_pool_size_is_garbage_then_it_is_not_believed(ledger: Ledger) -> None:
    """A pool of no tokens would refuse everybody for good; the last known size stands."""
    for garbage in (0, -5):
        ledger.calibrate(Signals(ONE, scraped_ns=0, kv_tokens=garbage), now_ns=0)
        assert ledger.accounts[ONE].kv_tokens == 1_000
    ledger.calibrate(Signals(ONE, scraped_ns=0, kv_tokens=2_000), now_ns=0)
    assert ledger.accounts[ONE].kv_tokens == 2_000


def test_calibrate_when_a_look_is_dated_ahead_then_the_next_ones_still_count() -> None:
    """A wrong date may not switch calibration, or the sight of staleness, off."""
    ledger = ledger_with()
    ledger.calibrate(Signals(ONE, scraped_ns=10**15, kv_used_tokens=0), now_ns=0)
    account = ledger.accounts[ONE]
    assert account.calibration.is_stale(now_ns=3 * S)
    ledger.calibrate(Signals(ONE, scraped_ns=3 * S, kv_used_tokens=100), now_ns=3 * S)
    assert account.unattributed_tokens == 30


def test_calibrate_when_readings_are_negative_then_count_as_zero() -> None:
    """A negative reading is garbage and may not pay for other traffic."""
    ledger = ledger_with()
    signals = Signals(ONE, scraped_ns=0, kv_used_tokens=100, waiting_prompt_tokens=-10_000)
    ledger.calibrate(signals, now_ns=0)
    assert ledger.accounts[ONE].calibration.drift_tokens == 100


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lease_ns": 0}, "lease_ns 0"),
        ({"abort_time_ns": -1}, "abort_time_ns -1"),
        ({"abort_time_ns": S + 1}, "abort_time_ns"),
        ({"closed_max": 0}, "closed_max 0"),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    config: dict[str, int], message: str
) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"{message}.*allowed: "):
        LedgerConfig(**config)
