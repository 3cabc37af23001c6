"""Refused attempts cost their tenant a little, and never its turn for good."""

from __future__ import annotations

import pytest

from tests.core.support import ONE, FixedRng, settle, small_policy
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.decision import Admit, Decision, Dispatch, Effect, Enqueue, Reject
from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FairnessConfig, RefusalCharges, fairness_row
from tokenweir.core.mode import Mode
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request, Usage
from tokenweir.core.signals import Signals

USED = Usage(50, 50)


def pool(*, refusal_tokens: int = 50, fairness: str = "vtc") -> Admitter:
    """Build an admitter of one busy replica, in whose queue three may wait."""
    config = AdmitterConfig(
        queue=QueueLimits(items_max=3),
        charges=FairnessConfig(refusal_tokens=refusal_tokens),
        fairness=fairness,
        returns=None,
    )
    admitter = Admitter(small_policy("ledger"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    assert isinstance(ask(admitter, "running", tenant="z", tokens=900), Admit)
    return admitter


def ask(admitter: Admitter, name: str, *, tenant: str, tokens: int = 100) -> Decision:
    """Let a request arrive, half of it prompt."""
    return admitter.arrive(Request(name, tokens // 2, tokens - tokens // 2, tenant), now_ns=0)


def flood(admitter: Admitter, tenant: str, *, attempts: int) -> None:
    """Let attempts of a tenant be refused."""
    for number in range(attempts):
        refused = ask(admitter, f"{tenant}{number} refused", tenant=tenant)
        assert isinstance(refused, Reject)


def entered(effects: tuple[Effect, ...]) -> list[str]:
    """Return who was dispatched, in order."""
    return [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]


def order_after(admitter: Admitter, *, attempts: int) -> list[str]:
    """Return in which order a flooder's two and a quiet tenant's one enter, after refusals."""
    assert isinstance(ask(admitter, "f1", tenant="flooder"), Enqueue)
    assert isinstance(ask(admitter, "f2", tenant="flooder"), Enqueue)
    assert isinstance(ask(admitter, "q1", tenant="quiet"), Enqueue)
    flood(admitter, "flooder", attempts=attempts)
    return entered(settle(admitter, "running", USED))


def test_refusals_when_charged_then_who_causes_them_goes_later() -> None:
    """Two refusals are enough to let another pass that came after; uncharged they are not."""
    assert order_after(pool(), attempts=0) == ["f1", "q1", "f2"]
    assert order_after(pool(), attempts=2) == ["q1", "f1", "f2"]
    assert order_after(pool(refusal_tokens=0), attempts=2) == ["f1", "q1", "f2"]


def test_refusals_when_the_row_charges_nothing_then_change_nothing() -> None:
    """Who takes turns has no counter to be charged."""
    admitter = pool(fairness="round_robin")
    assert order_after(admitter, attempts=2) == ["f1", "q1", "f2"]


def test_refusals_when_endless_then_the_turn_comes_all_the_same() -> None:
    """However many there are, others are served for 20 refusals' worth and no more before it."""
    fairness, charges = fairness_row("vtc", FairnessConfig()), RefusalCharges(FairnessConfig())
    for number, tenant in enumerate(("flooder", "quiet")):
        fairness.join(tenant, weight=1.0, arrival=number)
    served = {"flooder": 0, "quiet": 0}
    for _ in range(400):
        for _ in range(500):
            charges.note_refused(fairness, "flooder", weight=1.0)
        tenant = fairness.next()
        assert tenant is not None
        fairness.charge(tenant, weight=1.0, prompt_tokens=1_000, output_tokens=0)
        charges.note_entered(tenant)
        served[tenant] += 1
    # 200,000 refusals: a request of 1,000 tokens costs the flooder 2,000, so it gets a third.
    assert served["flooder"] == pytest.approx(400 / 3, abs=2)


def test_refusals_when_a_request_enters_then_are_paid_anew() -> None:
    """The bound counts from the last entry, and another tenant's entry is none."""
    fairness, charges = fairness_row("vtc", FairnessConfig()), RefusalCharges(FairnessConfig())
    for number, tenant in enumerate(("a", "b")):
        fairness.join(tenant, weight=1.0, arrival=number)

    def paid_of_a() -> int:
        """Return how many of b's tokens bring b level with what a is charged for now."""
        for _ in range(100):
            charges.note_refused(fairness, "a", weight=1.0)
        tokens = 0
        while fairness.next() == "b":
            fairness.charge("b", weight=1.0, prompt_tokens=50, output_tokens=0)
            tokens += 50
        return tokens

    assert paid_of_a() == 1_000
    charges.note_entered("b")
    assert paid_of_a() == 0
    charges.note_entered("a")
    assert paid_of_a() == 1_000


def test_refusals_when_a_tenant_weighs_more_then_cost_it_less() -> None:
    """Like service, they are divided by the weight."""
    fairness, charges = fairness_row("vtc", FairnessConfig()), RefusalCharges(FairnessConfig())
    for number, (tenant, weight) in enumerate((("a", 4.0), ("b", 1.0))):
        fairness.join(tenant, weight=weight, arrival=number)
    charges.note_refused(fairness, "a", weight=4.0)
    fairness.charge("b", weight=1.0, prompt_tokens=12, output_tokens=0)
    assert fairness.next() == "b"
    fairness.charge("b", weight=1.0, prompt_tokens=1, output_tokens=0)
    assert fairness.next() == "a"


@pytest.mark.parametrize("reason", [ReasonCode.NO_HEALTHY_REPLICA, ReasonCode.DRAINING])
def test_refusals_when_nobody_could_enter_then_are_free(reason: ReasonCode) -> None:
    """An engine that is down, or a gateway that stops, is not the tenant's doing."""
    admitter = pool()
    assert isinstance(ask(admitter, "f1", tenant="flooder"), Enqueue)
    assert isinstance(ask(admitter, "q1", tenant="quiet"), Enqueue)
    if reason is ReasonCode.DRAINING:
        admitter.drain(now_ns=0)
    else:
        admitter.observe(Signals(ONE, 0, is_healthy=False), now_ns=0)
    flood(admitter, "flooder", attempts=3)
    assert not admitter._refusing.charges
    assert set(admitter.refusal_counts()) == {(reason, "<=256")}


def test_refusals_when_observed_only_then_are_free() -> None:
    """What was let through all the same was not refused."""
    admitter = pool()
    assert isinstance(ask(admitter, "f1", tenant="flooder"), Enqueue)
    admitter.mode = Mode.OBSERVE
    assert isinstance(ask(admitter, "f2", tenant="flooder", tokens=900), Admit)
    assert not admitter._refusing.charges


def test_retries_when_they_come_then_the_same_tenant_pays_for_each() -> None:
    """Attempt numbers change nothing: what is refused is charged, and what enters too."""
    admitter = pool()
    assert isinstance(ask(admitter, "f1", tenant="flooder"), Enqueue)
    assert isinstance(ask(admitter, "f2", tenant="flooder"), Enqueue)
    assert isinstance(ask(admitter, "q1", tenant="quiet"), Enqueue)
    for attempt in (1, 2):
        again = Request(f"f3.{attempt}", 50, 50, "flooder", attempt=attempt)
        assert isinstance(admitter.arrive(again, now_ns=0), Reject)
    assert entered(settle(admitter, "running", USED)) == ["q1", "f1", "f2"]


def test_tenants_when_more_than_remembered_then_the_oldest_is_forgotten() -> None:
    """The memory of who paid is bounded like that of counters."""
    config = FairnessConfig(tenants_max=2)
    fairness, charges = fairness_row("vtc", config), RefusalCharges(config)
    fairness.join("waits", weight=1.0, arrival=0)
    for tenant in "abc":
        charges.note_refused(fairness, tenant, weight=1.0)
    assert len(charges) == 2


@pytest.mark.parametrize("name", ["refusal_tokens", "refusals_max"])
def test_config_when_below_nought_then_named(name: str) -> None:
    """The message says which setting, its value and what is allowed."""
    with pytest.raises(ConfigError, match=f"{name} -1 is not allowed, allowed: 0 or more"):
        FairnessConfig(**{name: -1})  # type: ignore[arg-type]  # one int setting by name
