"""Telemetry corrects the account slowly, and never releases anything."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import ONE, S, admit, admitter_with, ledger_with, request, reservation
from tokenweir.core.admitter import Admitter
from tokenweir.core.calibration import Calibration, CalibrationConfig
from tokenweir.core.cost import Estimate
from tokenweir.core.decision import DriftAlarm, Effect
from tokenweir.core.errors import ConfigError
from tokenweir.core.ledger import Ledger
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import Nanos

R = reservation("r")


def look(
    calibration: Calibration,
    *,
    real: int,
    at_ns: Nanos,
    held: int = 0,
    preemptions_total: int | None = None,
) -> bool:
    """Take in one look; all that is held is prompt, the pool has 1,000 tokens."""
    return calibration.calibrate(
        real_tokens=real,
        held_tokens=held,
        held_prompt_tokens=held,
        kv_tokens=1_000,
        preemptions_total=preemptions_total,
        scraped_ns=at_ns,
    )


def ledger_holding(*sizes: int) -> Ledger:
    """Build a ledger with open reservations r0, r1, ... of these prompt sizes."""
    ledger = ledger_with(kv_tokens=90_000)
    for index, size in enumerate(sizes):
        ledger.reserve(reservation(f"r{index}"), ONE, estimate=Estimate(size, 1), now_ns=0)
    return ledger


def zeros(seconds: int) -> Signals:
    """Return a look of an engine that claims to be empty."""
    return Signals(ONE, scraped_ns=seconds * S, kv_used_tokens=0, kv_tokens=0, running=0)


def test_settle_when_telemetry_came_between_then_nothing_is_released_twice() -> None:
    """Overwriting what is used by what is measured would release a settled request again.

    Three hold 1,000 each, the engine has freed one of them already when it is looked at. Overwrite
    2,000 and settle all three, and the account says -1,000.
    """
    ledger = ledger_holding(1_000, 1_000, 1_000)
    ledger.calibrate(Signals(ONE, scraped_ns=1, kv_used_tokens=2_000), now_ns=1)
    account = ledger.accounts[ONE]
    assert account.reserved_tokens == 3_003
    for index in range(3):
        ledger.settle(reservation(f"r{index}"), Usage(1_000, 1), outcome=Outcome.FINISHED, now_ns=2)
        assert account.reserved_tokens == 1_001 * (2 - index)
        ledger.check_invariants()
    assert account.reserved_tokens == account.held_tokens == account.in_flight == 0


@settings(deadline=None, print_blob=True)
@given(
    readings=st.lists(
        st.tuples(st.none() | st.integers(-(10**9), 10**9), st.integers(-(10**12), 10**12))
    )
)
def test_calibrate_when_told_anything_then_no_reservation_is_overwritten(
    readings: list[tuple[int | None, Nanos]],
) -> None:
    """Whatever the engine says, only the unattributed term moves."""
    ledger = ledger_holding(1_000, 2_000)
    for kv_used_tokens, scraped_ns in readings:
        signals = Signals(ONE, scraped_ns=scraped_ns, kv_used_tokens=kv_used_tokens)
        ledger.calibrate(signals, now_ns=10**12)
        account = ledger.accounts[ONE]
        assert (account.in_flight, account.reserved_tokens) == (2, 3_002)
        assert (account.held_tokens, account.held_prompt_tokens) == (3_000, 3_000)
        ledger.check_invariants()


def test_drift_when_lasting_then_is_taken_in_by_the_gain() -> None:
    """Foreign traffic is followed, at each look by the same share of what is missing."""
    calibration = Calibration(CalibrationConfig(gain=0.5))
    terms = []
    for second in range(4):
        look(calibration, real=400, held=300, at_ns=second * S)
        terms.append(calibration.unattributed_tokens)
    assert terms == [50, 75, 88, 94]
    assert calibration.drift_tokens == 100


def test_drift_when_gain_is_one_then_each_look_is_trusted_fully() -> None:
    """A simulator's telemetry is exact and is taken as it is."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    look(calibration, real=400, held=300, at_ns=0)
    assert calibration.unattributed_tokens == 100
    look(calibration, real=310, held=300, at_ns=1)
    assert calibration.unattributed_tokens == 10


def test_drift_when_the_scrape_is_late_then_is_taken_at_its_own_time() -> None:
    """A spike after the scrape was true is no drift."""
    admitter = admitter_with(kv_tokens=90_000)
    admit(admitter, request("a", prompt_tokens=1_000))
    admitter.advance(now_ns=0)
    admit(admitter, request("b", prompt_tokens=50_000), now_ns=S)
    admitter.advance(now_ns=S)
    late = Signals(ONE, scraped_ns=S // 2, kv_used_tokens=1_000)
    admitter.observe(late, now_ns=S + S // 2)
    (view,) = admitter.snapshot(now_ns=2 * S).accounts
    assert (view.drift_tokens, view.unattributed_tokens) == (0, 0)


def test_drift_when_negative_then_is_believed_only_after_patience() -> None:
    """Less than we hold is sharing only if it lasts; until then it is a slow scrape."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    terms = []
    for second in range(12):
        look(calibration, real=900, held=1_000, at_ns=second * S)
        terms.append(calibration.unattributed_tokens)
    assert terms == [0] * 10 + [-100] * 2


def test_drift_when_very_negative_then_credit_is_half_the_held_prompts() -> None:
    """Sharing can explain a part of the prompts, never all of them."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    for second in range(12):
        look(calibration, real=1, held=1_000, at_ns=second * S)
    assert calibration.unattributed_tokens == -500


def test_drift_when_the_engine_preempts_then_patience_starts_again() -> None:
    """An engine that drops KV for want of room has nothing to give away."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    for second in range(9):
        look(calibration, real=900, held=1_000, at_ns=second * S, preemptions_total=5)
    look(calibration, real=900, held=1_000, at_ns=9 * S, preemptions_total=6)
    for second in range(10, 20):
        look(calibration, real=900, held=1_000, at_ns=second * S, preemptions_total=6)
        assert calibration.unattributed_tokens == 0
    look(calibration, real=900, held=1_000, at_ns=20 * S, preemptions_total=6)
    assert calibration.unattributed_tokens == -100


def test_drift_when_positive_between_then_patience_starts_again() -> None:
    """A credit needs an unbroken stretch."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    for second in range(9):
        look(calibration, real=900, held=1_000, at_ns=second * S)
    look(calibration, real=1_100, held=1_000, at_ns=9 * S)
    assert calibration.unattributed_tokens == 100
    for second in range(10, 20):
        look(calibration, real=900, held=1_000, at_ns=second * S)
        assert calibration.unattributed_tokens == 0


def test_credit_when_the_prompts_end_then_goes_with_them() -> None:
    """A credit was for the prompts that were held when it was earned, not for the next ones."""
    admitter = credited_admitter()
    admitter.settle(R, Usage(400, 1), outcome=Outcome.FINISHED, now_ns=12 * S)
    admitter.advance(now_ns=12 * S)
    (view,) = admitter.snapshot(now_ns=12 * S).accounts
    assert view.unattributed_tokens == 0


def test_credit_when_telemetry_stops_then_is_taken_back() -> None:
    """Stale telemetry makes careful: what it allowed on top is no longer allowed."""
    admitter = credited_admitter()
    admitter.progress(ONE, {R: 1}, now_ns=12 * S)
    admitter.advance(now_ns=12 * S)
    (before,) = admitter.snapshot(now_ns=12 * S).accounts
    admitter.progress(ONE, {R: 1}, now_ns=15 * S)
    admitter.advance(now_ns=15 * S)
    (after,) = admitter.snapshot(now_ns=15 * S).accounts
    assert (before.unattributed_tokens, after.unattributed_tokens) == (-200, 0)
    assert after.is_stale


def credited_admitter() -> Admitter:
    """Build an admitter whose one request shares half its prompt, by the engine's word."""
    admitter = admitter_with("token", kv_tokens=10_000)
    admit(admitter, request("r", prompt_tokens=400))
    admitter.advance(now_ns=0)
    for second in range(1, 13):
        admitter.progress(ONE, {R: 1}, now_ns=second * S)
        admitter.observe(Signals(ONE, scraped_ns=second * S, kv_used_tokens=1), now_ns=second * S)
        admitter.advance(now_ns=second * S)
    (view,) = admitter.snapshot(now_ns=12 * S).accounts
    assert view.unattributed_tokens < -100
    account = admitter._ledger.accounts[ONE]
    assert account.occupied_tokens >= account.held_tokens // 2
    return admitter


def test_zeros_when_lasting_then_never_loosen_below_what_we_hold() -> None:
    """Telemetry that reads zero while our requests run is broken, and gives no credit."""
    ledger = ledger_holding(400)
    account = ledger.accounts[ONE]
    for second in range(60):
        ledger.calibrate(zeros(second), now_ns=second * S)
        assert account.occupied_tokens >= account.held_tokens == 400
    assert account.kv_tokens == 90_000


def test_zeros_when_foreign_traffic_was_seen_then_the_surcharge_fades() -> None:
    """What telemetry had added it may take away again, down to our own count."""
    ledger = ledger_holding(400)
    account = ledger.accounts[ONE]
    ledger.calibrate(Signals(ONE, scraped_ns=0, kv_used_tokens=1_400), now_ns=0)
    assert account.unattributed_tokens == 300
    for second in range(1, 30):
        ledger.calibrate(zeros(second), now_ns=second * S)
    assert account.unattributed_tokens == 0


def test_reading_when_larger_than_the_pool_then_counts_as_a_full_one() -> None:
    """No look, however wrong, adds more than the pool, and the next ones outweigh it soon."""
    ledger = ledger_with(kv_tokens=1_000)
    ledger.calibrate(Signals(ONE, scraped_ns=0, kv_used_tokens=10**29), now_ns=0)
    assert ledger.accounts[ONE].unattributed_tokens == 300


def test_size_when_another_then_what_was_learned_of_the_old_pool_is_forgotten() -> None:
    """A correction is one of a pool; another size is another pool."""
    ledger = ledger_with(kv_tokens=10**9)
    account = ledger.accounts[ONE]
    ledger.calibrate(Signals(ONE, scraped_ns=0, kv_used_tokens=5 * 10**8), now_ns=0)
    assert account.unattributed_tokens == 15 * 10**7
    ledger.calibrate(Signals(ONE, scraped_ns=S, kv_tokens=1_000, kv_used_tokens=100), now_ns=S)
    assert account.unattributed_tokens == 30
    ledger.calibrate(Signals(ONE, scraped_ns=2 * S, kv_tokens=500), now_ns=2 * S)
    assert account.unattributed_tokens == 0


def test_correction_when_nobody_vouches_for_it_any_more_then_it_fades() -> None:
    """Looks that tell nothing of KV keep it for ten seconds, and then take it back step by step."""
    ledger = ledger_with(kv_tokens=1_000)
    account = ledger.accounts[ONE]
    ledger.calibrate(Signals(ONE, scraped_ns=0, kv_used_tokens=1_000), now_ns=0)
    terms = []
    for second in (5, 10, 11, 12, 60, 61):
        ledger.calibrate(Signals(ONE, scraped_ns=second * S), now_ns=second * S)
        terms.append(account.unattributed_tokens)
    assert terms == [300, 300, 210, 147, 103, 72]


def test_look_when_older_than_the_last_then_is_ignored() -> None:
    """Scrapes that overtake each other do not turn the account back."""
    calibration = Calibration(CalibrationConfig(gain=1.0))
    look(calibration, real=500, at_ns=2 * S)
    look(calibration, real=0, at_ns=S)
    assert (calibration.unattributed_tokens, calibration.scraped_ns) == (500, 2 * S)


def test_telemetry_when_stale_then_headroom_grows_until_the_next_look() -> None:
    """An engine that has gone silent is promised less."""
    admitter = admitter_with(kv_tokens=1_000)
    admitter.observe(Signals(ONE, scraped_ns=0, kv_used_tokens=0), now_ns=0)
    account = admitter._ledger.accounts[ONE]
    usable = []
    for now_ns in (2 * S, 2 * S + 1):
        admitter.advance(now_ns=now_ns)
        usable.append(account.usable_tokens(0.95))
    admitter.observe(Signals(ONE, scraped_ns=3 * S, kv_used_tokens=0), now_ns=3 * S)
    admitter.advance(now_ns=3 * S)
    assert [*usable, account.usable_tokens(0.95)] == pytest.approx([950, 900, 950], abs=1)


def test_telemetry_when_it_never_came_then_is_not_stale() -> None:
    """An engine without telemetry has lost none; our own account is all there is."""
    calibration = Calibration(CalibrationConfig())
    assert not calibration.is_stale(now_ns=10**18)
    assert calibration.headroom_penalty_fraction(now_ns=10**18) == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_alarm_when_drift_lasts_ten_seconds_over_the_bound_then_is_raised(sign: int) -> None:
    """Five percent of the pool for ten seconds, in either direction."""
    calibration = Calibration(CalibrationConfig())
    alarms = [
        look(calibration, real=500 + sign * 51, held=500, at_ns=second * S) for second in range(12)
    ]
    assert alarms == [False] * 10 + [True] * 2


def test_alarm_when_drift_is_at_the_bound_or_returns_then_is_not_raised() -> None:
    """Just five percent is borne for ever, and a look within the bound starts anew."""
    calibration = Calibration(CalibrationConfig())
    assert not any(look(calibration, real=50, at_ns=second * S) for second in range(30))
    for second in range(30, 60):
        real = 0 if second % 9 == 0 else 500
        assert not look(calibration, real=real, at_ns=second * S)


def test_alarm_when_raised_then_leaves_as_an_effect() -> None:
    """The driver hears of the alarm from advance, with the size of the drift."""
    admitter = admitter_with(kv_tokens=1_000)
    effects: list[Effect] = []
    for second in range(11):
        admitter.observe(Signals(ONE, scraped_ns=second * S, kv_used_tokens=300), now_ns=second * S)
        effects += admitter.advance(now_ns=second * S)
    assert effects == [DriftAlarm(ONE, 300)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gain": 0.0}, "gain 0.0"),
        ({"gain": 1.1}, "gain 1.1"),
        ({"stale_headroom_fraction": 0.6}, "stale_headroom_fraction 0.6"),
        ({"stale_headroom_fraction": -0.1}, "stale_headroom_fraction -0.1"),
        ({"credit_fraction_max": 1.5}, "credit_fraction_max 1.5"),
        ({"alarm_fraction": -0.1}, "alarm_fraction -0.1"),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    config: dict[str, float], message: str
) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"{message}.*allowed: "):
        CalibrationConfig(**config)  # type: ignore[arg-type]  # one field at a time, by name
