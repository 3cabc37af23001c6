"""The life of a reservation: every legal transition, and every other one."""

import itertools

import pytest

from tests.core.support import ONE, reservation
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ContractError
from tokenweir.core.reservation import HOLDING, TRANSITIONS, Event, Reservation, State

PAIRS = list(itertools.product(State, Event))
LEGAL = [pair for pair in PAIRS if pair in TRANSITIONS]
ILLEGAL = [pair for pair in PAIRS if pair not in TRANSITIONS]
ENDS = {State.SETTLED, State.RELEASED, State.SETTLED_LATE}

# Written out a second time, so that a row cannot be added, lost or bent unseen.
GOLDEN = {
    "reserved first_token streaming",
    "reserved settle settled",
    "reserved settle_early draining",
    "reserved release released",
    "reserved lease_lost expired",
    "streaming settle settled",
    "streaming settle_early draining",
    "streaming lease_lost expired",
    "draining drained settled",
    "expired settle settled_late",
    "expired settle_early settled_late",
}


def in_state(state: State) -> Reservation:
    """Build a reservation that is in a state, however it got there."""
    built = Reservation(
        reservation("r"), ONE, estimate=Estimate(10, 20), start_ns=5, lease_expires_ns=50
    )
    built.held_tokens = 17
    built.state = state
    return built


def everything(of: Reservation) -> dict[str, object]:
    """Return all that a reservation remembers."""
    return {name: getattr(of, name) for name in Reservation.__slots__}


def test_transitions_when_written_out_then_are_the_golden_ones() -> None:
    """The table is the life cycle that the documents promise."""
    rows = {f"{s.value} {e.value} {target.value}" for (s, e), target in TRANSITIONS.items()}
    assert rows == GOLDEN


@pytest.mark.parametrize(("state", "event"), LEGAL, ids=str)
def test_move_when_legal_then_enters_the_state_of_the_table(state: State, event: Event) -> None:
    """A legal event moves the state, and only the state."""
    moved = in_state(state)
    expected = everything(moved) | {"state": TRANSITIONS[state, event]}
    moved.move(event)
    assert everything(moved) == expected


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=str)
def test_move_when_illegal_then_raises_and_changes_nothing(state: State, event: Event) -> None:
    """An illegal event is a broken contract that names the id, the state and the event."""
    unmoved = in_state(state)
    before = everything(unmoved)
    with pytest.raises(ContractError, match=f"reservation r is {state.value}, so {event.value} "):
        unmoved.move(event)
    assert everything(unmoved) == before


@pytest.mark.parametrize("state", State)
def test_states_when_followed_then_all_lead_to_an_end(state: State) -> None:
    """No state is a trap: from each one an end can be reached, and ends are left by nothing."""
    reached, frontier = {state}, {state}
    while frontier:
        frontier = {TRANSITIONS[s, e] for s, e in LEGAL if s in frontier} - reached
        reached |= frontier
    assert reached & ENDS
    if state in ENDS:
        assert reached == {state}


def test_states_when_entered_from_the_start_then_all_are_reachable() -> None:
    """No state stands in the code that nothing leads to."""
    assert {State.RESERVED, *TRANSITIONS.values()} == set(State)


def test_holding_when_left_then_is_never_entered_again() -> None:
    """What was given back is never held again, so nothing can be released twice."""
    assert {TRANSITIONS[s, e] for s, e in LEGAL if s not in HOLDING} & HOLDING == set()


def test_repr_when_shown_then_is_one_line_of_numbers() -> None:
    """The state can be read from a log line, and no text of a prompt is in it."""
    shown = repr(in_state(State.STREAMING))
    assert shown == "Reservation(r on one: streaming, reserved 30, held 17)"
