"""Background work pauses while urgent requests need the pool, and is never lost by it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.support import MS, ONE, TWO, FixedRng, S, reservation, settle, small_policy, ticket
from tests.core.test_admitter_tenants import ask, entered
from tokenweir.core.account import Account
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.aimd import AimdConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.classes import CLASSES, ClassDemand
from tokenweir.core.decision import Admit, Effect, Enqueue, Expire, PauseChanged, Reject
from tokenweir.core.errors import ConfigError
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.mode import Mode
from tokenweir.core.pausing import PauseCause, PauseConfig, Pausing
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority, Usage
from tokenweir.core.tenants import TenantConfig, TenantLimits
from tokenweir.core.units import Nanos

P0, P1, P3 = Priority.P0, Priority.P1, Priority.P3
USED = Usage(50, 50)


def pool(*, queue: QueueLimits | None = None, tenants: TenantConfig | None = None) -> Admitter:
    """Build an admitter with one replica of 1,000 tokens, of which 950 may be promised."""
    config = AdmitterConfig(
        queue=queue or QueueLimits(),
        tenants=tenants or TenantConfig(),
        ledger=LedgerConfig(lease_ns=None),
        returns=None,
    )
    admitter = Admitter(small_policy("ledger"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    return admitter


def changes(effects: tuple[Effect, ...]) -> list[PauseCause | None]:
    """Return how background work paused and resumed."""
    return [effect.cause for effect in effects if isinstance(effect, PauseChanged)]


def pressed(**parts: object) -> Admitter:
    """Return a full pool where a background request and a normal one wait since 0."""
    admitter = pool(**parts)  # type: ignore[arg-type]  # the parts of ``pool``
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    assert isinstance(ask(admitter, "batch", priority=P3), Enqueue)
    assert changes(admitter.advance(now_ns=0)) == []
    assert isinstance(ask(admitter, "normal"), Enqueue)
    assert changes(admitter.advance(now_ns=0)) == [PauseCause.URGENT_WAITING]
    return admitter


def test_background_when_an_urgent_one_waits_then_pauses_and_resumes_after_a_while() -> None:
    """Room alone does not resume it: two seconds without pressure do, at the named time."""
    admitter = pressed()
    assert entered(settle(admitter, "running", USED, now_ns=S)) == ["normal"]
    snapshot = admitter.snapshot(now_ns=S)
    assert snapshot.paused is PauseCause.URGENT_WAITING
    assert snapshot.pauses == {PauseCause.URGENT_WAITING: 1}
    assert snapshot.queued_by_class[P3] == 1
    # Pressure was seen last when the normal one came.
    assert admitter.next_wakeup_ns() == 2 * S
    assert admitter.advance(now_ns=2 * S - 1) == ()
    resumed = admitter.advance(now_ns=2 * S)
    assert (changes(resumed), entered(resumed)) == ([None], ["batch"])
    assert admitter.snapshot(now_ns=2 * S).paused is None
    admitter.check_invariants()


def test_background_when_it_comes_during_a_pause_then_waits_though_there_is_room() -> None:
    """An empty queue is no way around."""
    admitter = pressed()
    assert entered(settle(admitter, "running", USED, now_ns=S)) == ["normal"]
    assert admitter.cancel(ticket("batch"), now_ns=S)
    assert isinstance(ask(admitter, "late batch", priority=P3, now_ns=S), Enqueue)
    assert isinstance(ask(admitter, "another normal", now_ns=S), Enqueue)
    # The class above goes on as if nothing were waiting.
    assert entered(admitter.advance(now_ns=S)) == ["another normal"]
    assert entered(admitter.advance(now_ns=2 * S)) == ["late batch"]


def test_background_when_it_comes_after_the_pressure_then_pauses_for_the_rest() -> None:
    """What pressed a moment ago will press again, also where nothing was there to pause."""
    admitter = pool()
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    assert isinstance(ask(admitter, "normal"), Enqueue)
    assert changes(admitter.advance(now_ns=0)) == []
    assert entered(settle(admitter, "running", USED, now_ns=S)) == ["normal"]
    assert isinstance(ask(admitter, "batch", priority=P3, now_ns=S), Enqueue)
    assert changes(admitter.advance(now_ns=S)) == [PauseCause.URGENT_WAITING]
    assert entered(admitter.advance(now_ns=2 * S)) == ["batch"]


def test_background_when_paused_for_long_then_promoted_and_served() -> None:
    """After half of its wait it is of the class above, which does not pause."""
    classes = dict(CLASSES)
    classes[P3] = dataclasses.replace(classes[P3], wait_ns_max=20 * S)
    admitter = pressed(queue=QueueLimits(classes=classes))
    assert entered(settle(admitter, "running", USED, now_ns=S)) == ["normal"]
    for second in range(1, 10):
        # Pressure never ends: somebody urgent comes and does not fit.
        name = f"urgent {second}"
        assert isinstance(ask(admitter, name, tokens=900, now_ns=second * S), Enqueue)
        assert entered(admitter.advance(now_ns=second * S)) == []
        assert admitter.cancel(ticket(name), now_ns=second * S)
        assert entered(admitter.advance(now_ns=second * S)) == []
    assert entered(admitter.advance(now_ns=10 * S)) == ["batch"]
    assert admitter.snapshot(now_ns=10 * S).paused is PauseCause.URGENT_WAITING


def test_background_when_paused_then_kept_to_its_bounds_and_told_at_the_end() -> None:
    """A pause lengthens no wait and no queue: the last are refused, the first are told."""
    classes = dict(CLASSES)
    classes[P3] = dataclasses.replace(classes[P3], items_max=2, wait_ns_max=3 * S, is_pausable=True)
    admitter = pressed(queue=QueueLimits(classes=classes))
    assert isinstance(ask(admitter, "batch 2", priority=P3), Enqueue)
    refused = ask(admitter, "batch 3", priority=P3)
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.QUEUE_FULL
    (change, *expired) = admitter.advance(now_ns=3 * S)
    assert [e.ticket_id for e in (change, *expired) if isinstance(e, Expire)] == [
        "batch",
        "batch 2",
    ]
    admitter.check_invariants()


def test_background_when_nothing_may_wait_then_the_refusal_says_that_it_pauses() -> None:
    """A reason of its own, to be retried at the stated time."""
    admitter = pool(queue=QueueLimits(items_max=0))
    assert isinstance(ask(admitter, "urgent", tokens=900, priority=P0), Admit)
    admitter.progress(ONE, {reservation("urgent"): 450}, now_ns=5 * S)
    refused = ask(admitter, "batch", priority=P3, now_ns=5 * S)
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.CLASS_PAUSED
    assert refused.retry_after_ns is not None
    assert changes(admitter.advance(now_ns=5 * S)) == [PauseCause.HEADROOM]


def test_background_when_alone_then_never_pauses() -> None:
    """It may fill the pool to the last token when nobody else asks."""
    admitter = pool()
    assert isinstance(ask(admitter, "batch", tokens=900, priority=P3), Admit)
    assert isinstance(ask(admitter, "batch 2", priority=P3), Enqueue)
    assert admitter.advance(now_ns=0) == ()
    assert entered(settle(admitter, "batch", USED, now_ns=S)) == ["batch 2"]


def test_background_when_a_tenant_waits_at_its_own_cap_then_goes_on() -> None:
    """Who may not enter for its own limit does not need the pool."""
    admitter = pool(tenants=TenantConfig({"a": TenantLimits(in_flight_max=1)}))
    assert isinstance(ask(admitter, "running"), Admit)
    assert isinstance(ask(admitter, "capped"), Enqueue)
    assert isinstance(ask(admitter, "batch", tenant="b", priority=P3), Enqueue)
    effects = admitter.advance(now_ns=0)
    assert (changes(effects), entered(effects)) == ([], ["batch"])


def test_background_when_the_pool_is_bypassed_then_enters() -> None:
    """Nothing is held back where nothing is decided."""
    admitter = pressed()
    admitter.mode = Mode.BYPASS
    assert set(entered(admitter.advance(now_ns=0))) == {"normal", "batch"}


def account(
    used_tokens: int, *, is_cut: bool = False, is_healthy: bool = True, name: str = "one"
) -> Account:
    """Return a replica of 1,000 tokens that holds so many."""
    made = Account(
        ONE if name == "one" else TWO,
        kv_tokens=1_000,
        calibration=CalibrationConfig(),
        limit=AimdConfig(),
    )
    made.held_tokens = used_tokens
    made.is_healthy = is_healthy
    if is_cut:
        assert made.limit is not None
        made.limit.note_preemption()
        made.limit.advance(in_flight=10, kv_fraction=0.5, now_ns=0)
    return made


def look(
    pausing: Pausing, *accounts: Account, now_ns: Nanos, asked: Priority | None = P1
) -> PauseCause | None:
    """Let a pausing look at replicas while background work waits; returns why it pauses."""
    demand = ClassDemand(CLASSES)
    if asked is not None:
        demand.note(asked, now_ns=now_ns)
    pausing.update(accounts, short=None, is_waiting=True, demand=demand, now_ns=now_ns)
    return pausing.cause


def test_headroom_when_low_then_pauses_and_resumes_only_well_below() -> None:
    """Between the two bounds nothing changes, in either direction."""
    pausing = Pausing(PauseConfig(), CLASSES)
    assert look(pausing, account(899), now_ns=0) is None
    assert look(pausing, account(900), now_ns=1) is PauseCause.HEADROOM
    assert look(pausing, account(800), now_ns=10 * S) is PauseCause.HEADROOM
    assert pausing.resumes_ns() == 12 * S
    assert look(pausing, account(799), now_ns=12 * S - 1) is PauseCause.HEADROOM
    assert look(pausing, account(799), now_ns=12 * S) is None
    assert pausing.resumes_ns() is None
    assert look(pausing, account(899), now_ns=20 * S) is None


def test_headroom_when_one_replica_has_room_then_goes_on() -> None:
    """The pool is pressed where all its healthy replicas are."""
    pausing = Pausing(PauseConfig(), CLASSES)
    assert look(pausing, account(950), account(100, name="two"), now_ns=0) is None
    sick = account(100, name="two", is_healthy=False)
    assert look(pausing, account(950), sick, now_ns=1) is PauseCause.HEADROOM
    assert look(Pausing(PauseConfig(), CLASSES), sick, now_ns=1) is None


def test_outer_limit_when_cut_then_pauses_though_there_is_room() -> None:
    """Times or preemptions said that the engine has too much."""
    pausing = Pausing(PauseConfig(), CLASSES)
    assert look(pausing, account(100, is_cut=True), now_ns=0) is PauseCause.OUTER_LIMIT
    assert look(pausing, account(100), now_ns=2 * S) is None


@pytest.mark.parametrize("asked", [None, Priority.P2, P3])
def test_pressure_when_no_interactive_class_was_asked_for_then_is_none(
    asked: Priority | None,
) -> None:
    """A full pool alone, of batch's own making, is no reason."""
    full = account(1_000, is_cut=True)
    assert look(Pausing(PauseConfig(), CLASSES), full, now_ns=0, asked=asked) is None


def test_classes_when_none_is_pausable_then_nothing_pauses() -> None:
    """The table decides."""
    classes = {p: dataclasses.replace(row, is_pausable=False) for p, row in CLASSES.items()}
    pausing = Pausing(PauseConfig(), classes)
    assert look(pausing, account(1_000), now_ns=0) is None
    assert pausing.paused == frozenset()


@pytest.mark.parametrize(
    "bad",
    [
        {"kv_fraction_up": 0.8},
        {"kv_fraction_up": 1.1},
        {"kv_fraction_down": 0.0},
        {"quiet_ns": -1},
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(bad: dict[str, float]) -> None:
    """Bounds that would flap are refused at start."""
    with pytest.raises(ConfigError, match="allowed: 0"):
        PauseConfig(**bad)  # type: ignore[arg-type]  # one setting by name


def test_quiet_when_nought_then_resumes_as_soon_as_nothing_presses() -> None:
    """Hysteresis in time can be turned off."""
    pausing = Pausing(PauseConfig(quiet_ns=0), CLASSES)
    assert look(pausing, account(900), now_ns=5 * MS) is PauseCause.HEADROOM
    assert look(pausing, account(700), now_ns=5 * MS) is None
