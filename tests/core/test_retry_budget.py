"""The budget of retries that nobody paced."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.core.support import S
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.returns.budget import RetryBudget
from tokenweir.core.units import Nanos


def passes(budget: RetryBudget, tenant: str = "a", *, cost: int = 100, now_ns: Nanos = 0) -> bool:
    """Let a retry through if the budget allows it."""
    if not budget.allows(tenant, cost, now_ns=now_ns):
        return False
    budget.charge(tenant, cost, now_ns=now_ns)
    return True


def test_budget_when_nothing_was_admitted_then_lets_one_a_second_through() -> None:
    """Ten in a window of ten seconds, then no more until they are past."""
    budget = RetryBudget(ReturnConfig())
    assert sum(passes(budget, now_ns=i * S // 50) for i in range(50)) == 10
    assert not passes(budget, now_ns=9 * S)
    assert passes(budget, now_ns=10 * S)


def test_budget_when_first_attempts_were_admitted_then_lets_a_tenth_of_their_tokens_through() -> (
    None
):
    """Weighted by tokens: a retry of many tokens takes the place of many."""
    budget = RetryBudget(ReturnConfig(budget_min_rps=0.0))
    for _ in range(100):
        budget.note_first("a", 1_000, now_ns=0)
    assert passes(budget, cost=9_000)
    assert not passes(budget, cost=1_001)
    assert passes(budget, cost=1_000)


def test_budget_when_one_tenant_has_used_its_own_up_then_another_still_has_its() -> None:
    """A storm of one costs the others nothing."""
    budget = RetryBudget(ReturnConfig())
    while passes(budget, "storm"):
        pass
    assert passes(budget, "quiet")


def test_budget_when_tenants_are_too_many_then_the_quietest_is_forgotten() -> None:
    """The memory is bounded."""
    budget = RetryBudget(ReturnConfig(tenants_max=2, budget_min_rps=0.1))
    assert passes(budget, "a")
    assert passes(budget, "b")
    assert passes(budget, "c")
    assert len(budget) == 2
    assert not passes(budget, "b")
    assert passes(budget, "a")


events = st.lists(
    st.tuples(st.integers(0, 3 * S), st.booleans(), st.integers(1, 5_000)), max_size=120
)


@settings(deadline=None, print_blob=True)
@given(events=events)
def test_budget_when_first_attempts_and_retries_mix_then_holds_in_every_window(
    events: list[tuple[Nanos, bool, int]],
) -> None:
    """INV-RETRY-1, against a recount of everything that happened in the window."""
    config = ReturnConfig()
    budget, now_ns = RetryBudget(config), 0
    admitted: list[tuple[int, int]] = []
    spent: list[tuple[int, int]] = []
    for later_ns, is_first, cost in events:
        now_ns += later_ns
        second = now_ns // S
        if is_first:
            budget.note_first("a", cost, now_ns=now_ns)
            admitted.append((second, cost))
            continue
        since = second - config.budget_window_s
        recent = [c for s, c in spent if s > since]
        fed = sum(c for s, c in admitted if s > since)
        expected = len(recent) < 10 or sum(recent) + cost <= 0.10 * fed
        assert passes(budget, cost=cost, now_ns=now_ns) == expected
        if expected:
            spent.append((second, cost))
