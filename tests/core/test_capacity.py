"""What every capacity test must be able to say, for each row of the table.

``fits`` and ``freed`` say it a second time, row by row, in the plainest words.
"""

import copy
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.core.support import ONE, account_with, reservation, stepped_peak
from tokenweir.core.account import Account
from tokenweir.core.batch_peak import _HELD, _SHIFT
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.capacity import CAPACITIES, Shortage, capacity_test
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.capacity.future_peak import FuturePeak
from tokenweir.core.capacity.hard_gate import HardGate
from tokenweir.core.capacity.occupancy import Occupancy
from tokenweir.core.capacity.token_reservation import TokenReservation
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.reasons import REASONS, ReasonCode

UNKNOWN_KV_IN_FLIGHT_MAX = 32
CAP = 100
FRACTION = 0.95
GATE_FRACTION = 0.88
PEAK_FRACTION = FuturePeak().headroom_fraction
COUNTED = {"concurrency": CAP, "seats": 1_024}
WAITING_MAX = 16
# These ask how many tokens the pool has, and count requests where nobody knows.
TOKEN_ROWS = ("token_reservation", "occupancy", "hard_gate", "future_peak")

# Some tests speak of shortages only, and most drawn requests fit: what is filtered out is cheap.
everywhere = settings(
    deadline=None,
    print_blob=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.filter_too_much],
)
sizes = st.integers(0, 3_000)
estimates = st.builds(Estimate, sizes, st.integers(1, 3_000))
batches = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 300)), max_size=5)


def usable(account: Account, fraction: float) -> int:
    """Return what the model says may be filled."""
    assert account.kv_tokens is not None
    return int(account.kv_tokens * (fraction - account.headroom_penalty_fraction))


def promised(account: Account) -> int:
    """Return whole estimates, draining and foreign tokens."""
    foreign = max(0, account.unattributed_tokens)
    return account.reserved_tokens + account.draining_tokens + foreign


def occupied(account: Account) -> int:
    """Return held, draining and unattributed tokens."""
    return max(0, account.held_tokens + account.draining_tokens + account.unattributed_tokens)


def occupancy_fits(estimate: Estimate, account: Account) -> bool:
    """Return whether the tokens in the pool leave room for the newcomer."""
    return occupied(account) + estimate.tokens <= usable(account, FRACTION)


def batch_of(account: Account) -> list[tuple[int, int]]:
    """Return held and remaining tokens of everybody on the replica."""
    batch = account.batch
    assert batch is not None
    return [(row & _HELD, -(row >> _SHIFT)) for row in batch._rows]


def future_peak_fits(estimate: Estimate, account: Account) -> bool:
    """Return whether the pool holds out to the end, or to the first token of one who is alone."""
    rows = batch_of(account)
    expected = estimate.output_tokens if rows else 1
    peak = stepped_peak([*rows, (estimate.prompt_tokens, expected)])
    beside = account.draining_tokens + max(0, account.unattributed_tokens)
    return peak + beside <= usable(account, PEAK_FRACTION)


FITS: dict[str, Callable[[Estimate, Account], bool]] = {
    "none": lambda estimate, account: True,
    "concurrency": lambda estimate, account: account.in_flight < CAP,
    "seats": lambda estimate, account: account.in_flight < COUNTED["seats"],
    "engine_queue": lambda estimate, account: account.engine_waiting < WAITING_MAX,
    "token_reservation": lambda estimate, account: (
        promised(account) + estimate.tokens <= usable(account, FRACTION)
    ),
    "occupancy": occupancy_fits,
    "hard_gate": lambda estimate, account: (
        occupied(account) <= usable(account, GATE_FRACTION) and occupancy_fits(estimate, account)
    ),
    "future_peak": future_peak_fits,
}


def fits(name: str, estimate: Estimate, account: Account) -> bool:
    """Return what the row's model says, with the careful count for an unknown pool."""
    if name in TOKEN_ROWS and account.kv_tokens is None:
        return account.in_flight < UNKNOWN_KV_IN_FLIGHT_MAX
    return FITS[name](estimate, account)


@st.composite
def accounts(draw: st.DrawFn, *, has_kv: bool | None = None) -> Account:
    """Draw an account in any state that a ledger could leave it in."""
    kv_tokens: int | None = draw(st.integers(1, 5_000))
    if has_kv is not True and (has_kv is False or draw(st.booleans())):
        kv_tokens = None
    account = Account(ONE, kv_tokens=kv_tokens, calibration=CalibrationConfig(), tracks_batch=True)
    assert account.batch is not None
    for index, (held, remaining) in enumerate(draw(batches)):
        account.batch.add(reservation(f"r{index}"), held_tokens=held, remaining=remaining)
    account.in_flight = draw(st.integers(0, 130) | st.integers(1_000, 1_100))
    account.decoding = draw(st.integers(0, account.in_flight))
    if account.in_flight:
        account.held_prompt_tokens = draw(sizes)
        account.held_tokens = account.held_prompt_tokens + draw(sizes)
        account.reserved_tokens = account.held_prompt_tokens + draw(sizes) + account.in_flight
    account.draining_tokens = draw(sizes)
    account.unattributed_tokens = draw(st.integers(-1_000, 1_000))
    account.headroom_penalty_fraction = draw(st.sampled_from([0.0, 0.05]))
    return account


def state(account: Account) -> dict[str, object]:
    """Return all that a capacity test may read."""
    names = set(Account.__slots__) - {"_history", "calibration", "batch", "headroom", "limit"}
    return {name: getattr(account, name) for name in names} | {"batch": batch_of(account)}


def freed(account: Account, *, tokens: int) -> Account:
    """Return the account after this much has drained."""
    after = copy.copy(account)
    after.draining_tokens -= tokens
    return after


def closed(account: Account, *, requests: int) -> Account:
    """Return the account with this many requests fewer."""
    after = copy.copy(account)
    after.in_flight -= requests
    after.decoding = min(after.decoding, after.in_flight)
    return after


def test_models_when_listed_then_cover_every_row() -> None:
    """A row that is not modelled here cannot exist."""
    assert set(FITS) == set(CAPACITIES)
    assert {"none", "engine_queue", *COUNTED, *TOKEN_ROWS} == set(CAPACITIES)


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, account=accounts())
def test_shortage_when_none_then_it_really_fits(
    name: str, estimate: Estimate, account: Account
) -> None:
    """The answer is that of the model in the file's docstring, and nothing is changed by asking."""
    before = state(account)
    shortage = capacity_test(name).shortage(estimate, account)
    assert (shortage is None) is fits(name, estimate, account)
    assert state(account) == before


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, account=accounts())
def test_shortage_when_told_then_can_be_explained(
    name: str, estimate: Estimate, account: Account
) -> None:
    """A shortage names a retryable reason, and a use that leaves too little of a limit."""
    shortage = capacity_test(name).shortage(estimate, account)
    if shortage is not None:
        assert REASONS[shortage.reason].is_retryable
        assert REASONS[shortage.reason].status == 429
        assert shortage.missing_tokens > 0
        assert shortage.used_tokens + estimate.tokens > shortage.limit_tokens


@pytest.mark.parametrize("name", TOKEN_ROWS)
@everywhere
@given(estimate=estimates, account=accounts(has_kv=True))
def test_missing_when_freed_then_it_fits_and_not_before(
    name: str, estimate: Estimate, account: Account
) -> None:
    """What is missing is exactly what must be freed, so the advice built on it is right."""
    capacity = capacity_test(name)
    account.unattributed_tokens = max(0, account.unattributed_tokens)
    shortage = capacity.shortage(estimate, account)
    assume(shortage is not None)
    assert shortage is not None
    # More than is in use cannot be freed: such a request must wait for fresh telemetry or larger
    # pools, and ``is_impossible`` has the word.
    assume(shortage.missing_tokens <= shortage.used_tokens)
    missing = shortage.missing_tokens
    assert capacity.shortage(estimate, freed(account, tokens=missing)) is None
    assert capacity.shortage(estimate, freed(account, tokens=missing - 1)) is not None


@pytest.mark.parametrize("name", [*COUNTED, *TOKEN_ROWS])
@everywhere
@given(estimate=estimates, account=accounts(has_kv=False))
def test_missing_when_requests_are_counted_then_is_a_mean_hold_for_each_place(
    name: str, estimate: Estimate, account: Account
) -> None:
    """A place is worth what the mean request holds, and that many places must be left."""
    cap = COUNTED.get(name, UNKNOWN_KV_IN_FLIGHT_MAX)
    capacity = capacity_test(name)
    shortage = capacity.shortage(estimate, account)
    assume(shortage is not None)
    places = account.in_flight - cap + 1
    mean_tokens = account.reserved_tokens // account.in_flight
    expected = Shortage(
        ReasonCode.OVERLOAD_CONCURRENCY, mean_tokens * places, account.in_flight, cap
    )
    assert shortage == expected
    assert capacity.shortage(estimate, closed(account, requests=places)) is None
    assert capacity.shortage(estimate, closed(account, requests=places - 1)) is not None


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, less=sizes, account=accounts())
def test_shortage_when_less_is_asked_for_then_no_more_is_missing(
    name: str, estimate: Estimate, less: int, account: Account
) -> None:
    """A smaller request never finds less room."""
    smaller = Estimate(max(0, estimate.prompt_tokens - less), estimate.output_tokens)
    capacity = capacity_test(name)
    large, small = capacity.shortage(estimate, account), capacity.shortage(smaller, account)
    if large is None:
        assert small is None
    elif small is not None:
        assert small.missing_tokens <= large.missing_tokens


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, account=accounts(), fewer=st.integers(0, 130), drained=sizes)
def test_shortage_when_something_ends_then_there_is_no_less_room(
    name: str, estimate: Estimate, account: Account, fewer: int, drained: int
) -> None:
    """What fitted still fits after an end, and what is free has not become less."""
    capacity = capacity_test(name)
    after = copy.copy(account)
    after.in_flight -= min(fewer, account.in_flight)
    after.draining_tokens -= min(drained, account.draining_tokens)
    if capacity.shortage(estimate, account) is None:
        assert capacity.shortage(estimate, after) is None
    assert capacity.free_tokens(after) >= capacity.free_tokens(account)


@everywhere
@given(estimate=estimates, account=accounts(has_kv=True), data=st.data())
def test_peak_when_somebody_leaves_or_gets_on_then_there_is_no_less_room(
    estimate: Estimate, account: Account, data: st.DataObject
) -> None:
    """Whoever ends makes room, and a step that all take together changes nothing."""
    peak = FuturePeak()
    rows = batch_of(account)
    assume(rows)
    free = peak.free_tokens(account)
    assert account.batch is not None
    steps = min(remaining for _, remaining in rows)
    for index in range(len(rows)):
        account.batch.produce(reservation(f"r{index}"), steps)
    assert peak.free_tokens(account) == free
    # Taken after the steps: a newcomer's own peak meets another moment of theirs then.
    before = peak.shortage(estimate, account)
    account.batch.remove(reservation(f"r{data.draw(st.integers(0, len(rows) - 1))}"))
    assert peak.free_tokens(account) >= free
    if before is None:
        assert peak.shortage(estimate, account) is None


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, kv_tokens=st.none() | st.integers(1, 5_000))
def test_impossible_when_told_then_an_empty_replica_has_no_room_either(
    name: str, estimate: Estimate, kv_tokens: int | None
) -> None:
    """Refused for good is exactly what does not fit a replica without any load."""
    capacity = capacity_test(name)
    empty = account_with(kv_tokens=kv_tokens)
    is_short = capacity.shortage(estimate, empty) is not None
    assert capacity.is_impossible(estimate, empty) is is_short


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, account=accounts(has_kv=True))
def test_impossible_when_asked_under_load_then_load_and_staleness_do_not_matter(
    name: str, estimate: Estimate, account: Account
) -> None:
    """What can be served at another time is never refused for good."""
    capacity = capacity_test(name)
    empty = account_with(kv_tokens=account.kv_tokens)
    assert capacity.is_impossible(estimate, account) is capacity.is_impossible(estimate, empty)


@pytest.mark.parametrize("name", CAPACITIES)
@everywhere
@given(estimate=estimates, account=accounts(), other=sizes)
def test_occupancy_when_not_needed_then_is_not_looked_at(
    name: str, estimate: Estimate, account: Account, other: int
) -> None:
    """A row that says it can do without the engine's KV does without it."""
    capacity = capacity_test(name)
    before = capacity.shortage(estimate, account)
    if not capacity.needs_occupancy:
        account.held_tokens = other
    assert capacity.shortage(estimate, account) == before


@pytest.mark.parametrize("name", TOKEN_ROWS)
def test_shortage_when_the_pool_is_unknown_then_requests_are_counted(name: str) -> None:
    """Careful, not unlimited: 32 places where nobody has told how many tokens there are."""
    capacity = capacity_test(name)
    huge = Estimate(10**9, 1)
    assert not capacity.is_impossible(huge, account_with(kv_tokens=None))
    almost = account_with(kv_tokens=None, reserved=((10, 10),) * 31)
    assert capacity.shortage(huge, almost) is None
    assert capacity.free_tokens(almost) == 1
    full = account_with(kv_tokens=None, reserved=((10, 10),) * 32)
    assert capacity.shortage(huge, full) == Shortage(ReasonCode.OVERLOAD_CONCURRENCY, 20, 32, 32)


@pytest.mark.parametrize("name", TOKEN_ROWS)
def test_shortage_when_at_the_bound_then_the_last_token_fits(name: str) -> None:
    """The bound belongs to what fits."""
    capacity = capacity_test(name)
    account = account_with(kv_tokens=1_000, reserved=((400, 0),))
    limit = usable(account, PEAK_FRACTION if name == "future_peak" else FRACTION)
    assert capacity.shortage(Estimate(limit - 400, 0), account) is None
    assert capacity.shortage(Estimate(limit - 399, 0), account) == Shortage(
        ReasonCode.OVERLOAD_KV, 1, 400, limit
    )
    assert capacity.free_tokens(account) == limit - 400


def test_reservation_when_outputs_are_open_then_keeps_room_for_them() -> None:
    """What is promised counts whole, what is held does not matter."""
    account = account_with(kv_tokens=1_000, reserved=((100, 700),))
    assert TokenReservation().shortage(Estimate(150, 1), account) is not None
    assert Occupancy().shortage(Estimate(150, 1), account) is None


def test_reservation_when_there_is_a_credit_then_does_not_use_it() -> None:
    """Sharing makes less KV, not a smaller promise."""
    account = account_with(kv_tokens=1_000, reserved=((900, 1),), unattributed_tokens=-400)
    assert TokenReservation().shortage(Estimate(99, 1), account) is not None
    assert Occupancy().shortage(Estimate(99, 1), account) is None


def test_peak_when_ends_lie_apart_then_promises_the_same_token_twice() -> None:
    """Two of 500 tokens do not both fit whole, but the short one has left when the long one grows.

    After 100 steps they hold 200 + 500 tokens, and that is the most.
    """
    account = account_with(kv_tokens=740, reserved=((100, 400),))
    estimate = Estimate(400, 100)
    assert TokenReservation().shortage(estimate, account) is not None
    assert FuturePeak(headroom_fraction=FRACTION).shortage(estimate, account) is None
    tighter = account_with(kv_tokens=730, reserved=((100, 400),))
    assert FuturePeak(headroom_fraction=FRACTION).shortage(estimate, tighter) == Shortage(
        ReasonCode.OVERLOAD_KV, 7, 500, 693
    )


def test_peak_when_all_end_together_then_is_the_sum_of_the_promises() -> None:
    """Where nobody leaves before the others there is nothing to gain."""
    account = account_with(kv_tokens=1_000, reserved=((100, 200), (300, 200)))
    assert FuturePeak().used_tokens(account) == account.reserved_tokens == 800


def test_peak_when_nobody_else_is_there_then_a_prediction_keeps_nobody_out() -> None:
    """What is predicted to outgrow the pool enters an empty one, since it may end sooner."""
    alone = account_with(kv_tokens=1_000)
    longest = Estimate(500, 1_024)
    assert FuturePeak().shortage(longest, alone) is None
    assert not FuturePeak().is_impossible(longest, alone)
    beside = account_with(kv_tokens=1_000, reserved=((10, 1),))
    assert FuturePeak().shortage(longest, beside) is not None


def test_peak_when_foreign_tokens_are_seen_then_they_count_and_a_credit_does_not() -> None:
    """A prediction may be wrong as it is; what sharing seems to save is not added to it."""
    foreign = account_with(kv_tokens=1_000, draining_tokens=50, unattributed_tokens=300)
    assert FuturePeak().used_tokens(foreign) == 350
    shared = account_with(kv_tokens=1_000, reserved=((400, 1),), unattributed_tokens=-300)
    assert FuturePeak().used_tokens(shared) == 401


def test_peak_when_the_account_has_no_batch_then_breaks_the_contract() -> None:
    """An account that was not told to follow its requests cannot be asked for their peak."""
    account = Account(ONE, kv_tokens=1_000, calibration=CalibrationConfig())
    with pytest.raises(ContractError, match="account of one does not track its batch"):
        FuturePeak().shortage(Estimate(1, 1), account)


def test_gate_when_shut_then_even_the_smallest_is_refused() -> None:
    """The gate does not look at the request, only at the pool."""
    account = account_with(kv_tokens=1_000, reserved=((881, 1),))
    assert HardGate().shortage(Estimate(0, 1), account) == Shortage(
        ReasonCode.OVERLOAD_GATE, 1, 881, 880
    )
    assert Occupancy().shortage(Estimate(0, 1), account) is None


def test_gate_when_shut_before_a_large_one_then_misses_what_both_tests_need() -> None:
    """An open gate is not enough: the advice counts the room behind it too."""
    account = account_with(kv_tokens=1_000, reserved=((881, 1),))
    assert HardGate().shortage(Estimate(499, 1), account) == Shortage(
        ReasonCode.OVERLOAD_GATE, 431, 881, 880
    )


def test_unlimited_when_placing_then_prefers_who_holds_least() -> None:
    """Without a limit there is still a better place."""
    none = capacity_test("none")
    idle, busy = account_with(), account_with(reserved=((10, 1),))
    assert none.free_tokens(idle) > none.free_tokens(busy)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_fractions_when_out_of_range_then_say_what_is_allowed(fraction: float) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    message = f"_fraction {fraction} is not allowed, allowed: above 0 up to 1"
    for build in (
        lambda: TokenReservation(headroom_fraction=fraction),
        lambda: Occupancy(headroom_fraction=fraction),
        lambda: FuturePeak(headroom_fraction=fraction),
        lambda: HardGate(gate_fraction=fraction),
    ):
        with pytest.raises(ConfigError, match=message):
            build()


def test_cap_when_below_one_then_says_what_is_allowed() -> None:
    """A cap of nothing would refuse everybody for ever."""
    with pytest.raises(ConfigError, match="in_flight_max 0 is not allowed, allowed: 1 or more"):
        Concurrency(in_flight_max=0)


def test_capacity_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones."""
    allowed = ", ".join(CAPACITIES)
    with pytest.raises(ConfigError, match=f"unknown capacity 'vibes', allowed: {allowed}"):
        capacity_test("vibes")
