"""One replica's sums, and its memory of what was held."""

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.core.support import MS, S, account_with
from tokenweir.core.account import Account
from tokenweir.core.units import Nanos

GRAIN_NS = 20 * MS


def remember(account: Account, held_tokens: int, *, now_ns: Nanos) -> None:
    """Let an account hold this much at a time."""
    account.held_tokens = held_tokens
    account.remember(now_ns=now_ns)


def test_occupied_when_a_credit_exceeds_all_then_is_zero() -> None:
    """Occupancy never becomes negative."""
    account = account_with(reserved=((100, 1),), draining_tokens=20, unattributed_tokens=-500)
    assert account.occupied_tokens == 0


def test_occupied_when_read_then_adds_held_draining_and_unattributed() -> None:
    """All three parts of what the engine holds are counted."""
    account = account_with(reserved=((100, 1),), draining_tokens=20, unattributed_tokens=3)
    assert account.occupied_tokens == 123


def test_usable_when_pool_is_unknown_then_is_zero() -> None:
    """Nothing may be promised of a pool whose size nobody told."""
    assert account_with(kv_tokens=None).usable_tokens(0.95) == 0


def test_usable_when_penalised_then_shrinks_by_the_penalty() -> None:
    """The larger headroom of stale telemetry comes off the usable part."""
    account = account_with(kv_tokens=1_000)
    account.headroom_penalty_fraction = 0.25
    assert account.usable_tokens(0.75) == 500


def test_held_at_when_nothing_is_remembered_then_is_what_is_held_now() -> None:
    """Without a history the present is the best guess."""
    assert account_with(reserved=((100, 1),)).held_tokens_at(0, now_ns=S) == 100


def test_held_at_when_asked_for_the_past_then_answers_the_past() -> None:
    """A scrape is compared with what was held when it was true."""
    account = account_with()
    remember(account, 100, now_ns=0)
    remember(account, 500, now_ns=S)
    assert account.held_tokens_at(S - 1, now_ns=2 * S) == 100
    assert account.held_tokens_at(S, now_ns=2 * S) == 500
    assert account.held_tokens_at(2 * S, now_ns=2 * S) == 500


def test_held_at_when_beyond_the_history_then_is_its_nearest_end() -> None:
    """The history has a bound; before it the oldest sample stands."""
    account = account_with()
    for second in range(60):
        remember(account, second, now_ns=second * S)
    assert account.held_tokens_at(0, now_ns=60 * S) == 54


def test_held_at_when_the_last_change_came_quickly_then_it_is_remembered() -> None:
    """A change within the grain of the one before, then silence, is not lost."""
    account = account_with()
    remember(account, 100, now_ns=0)
    remember(account, 0, now_ns=5 * MS)
    assert account.held_tokens_at(900 * MS, now_ns=S) == 0


@settings(deadline=None, print_blob=True)
@given(
    changes=st.lists(st.tuples(st.integers(0, 60 * MS), st.integers(0, 1_000)), max_size=40),
    back_ns=st.integers(0, S),
)
def test_held_at_when_compared_with_the_truth_then_errs_by_a_grain_at_most(
    changes: list[tuple[Nanos, int]], back_ns: Nanos
) -> None:
    """What is remembered was really held within a grain of the time that is asked for."""
    account = account_with()
    now_ns, truth = 0, [(0, 0)]
    remember(account, 0, now_ns=0)
    for passed_ns, held_tokens in changes:
        now_ns += passed_ns
        truth.append((now_ns, held_tokens))
        remember(account, held_tokens, now_ns=now_ns)
    now_ns += 100 * MS
    then_ns = max(0, now_ns - back_ns)
    before = [held for at_ns, held in truth if at_ns <= then_ns - GRAIN_NS][-1:]
    around = [held for at_ns, held in truth if abs(at_ns - then_ns) <= GRAIN_NS]
    assert account.held_tokens_at(then_ns, now_ns=now_ns) in {*before, *around}
