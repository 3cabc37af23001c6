"""The peak of a batch is what stepping it to its end would find."""

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.core.support import reservation, stepped_peak
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.units import ReservationId

Rows = list[tuple[int, int]]

everywhere = settings(deadline=None, print_blob=True, max_examples=200)
row = st.tuples(st.integers(0, 5_000), st.integers(0, 120))
rows = st.lists(row, max_size=12)


def named(index: int) -> ReservationId:
    """Return the id of the request in this place."""
    return reservation(f"r{index}")


def batch_of(asked: Rows) -> BatchPeak:
    """Build a batch of (held, remaining) tokens."""
    batch = BatchPeak()
    for index, (held, remaining) in enumerate(asked):
        batch.add(named(index), held_tokens=held, remaining=remaining)
    return batch


@everywhere
@given(asked=rows)
def test_peak_when_stepped_by_hand_then_is_the_same(asked: Rows) -> None:
    """The formula is exact where the lengths are, down to an empty batch."""
    batch = batch_of(asked)
    assert batch.peak_tokens() == stepped_peak(asked)
    assert len(batch) == len(asked)
    assert batch.held_tokens == sum(held for held, _ in asked)


@everywhere
@given(asked=rows, candidate=row)
def test_peak_with_a_candidate_when_it_is_added_then_is_the_peak(
    asked: Rows, candidate: tuple[int, int]
) -> None:
    """Asking about a newcomer says what letting it in would bring, and lets nobody in."""
    batch = batch_of(asked)
    before = batch.peak_tokens()
    held, remaining = candidate
    expected = batch.peak_tokens_with(held, remaining)
    assert (len(batch), batch.peak_tokens()) == (len(asked), before)
    assert before <= expected <= before + held + remaining
    batch.add(reservation("new"), held_tokens=held, remaining=remaining)
    assert batch.peak_tokens() == expected == stepped_peak([*asked, candidate])


@everywhere
@given(asked=rows, data=st.data())
def test_peak_when_some_have_left_then_is_that_of_the_others(
    asked: Rows, data: st.DataObject
) -> None:
    """Any may leave, in any order, and their places are filled without a trace."""
    batch = batch_of(asked)
    left = dict(enumerate(asked))
    for index in data.draw(st.permutations(range(len(asked)))):
        batch.remove(named(index))
        del left[index]
        assert len(batch) == len(left)
        assert batch.peak_tokens() == stepped_peak(left.values())
        # Who was moved into the gap is still found by its own name.
        for other, (held, remaining) in list(left.items()):
            batch.lengthen(named(other), remaining + 1)
            left[other] = (held, remaining + 1)
        assert batch.peak_tokens() == stepped_peak(left.values())


@everywhere
@given(asked=st.lists(row, min_size=1, max_size=12), data=st.data())
def test_peak_when_all_get_on_together_then_stays(asked: Rows, data: st.DataObject) -> None:
    """What is held grows as what remains falls: progress that is a little old does no harm."""
    batch = batch_of(asked)
    before = batch.peak_tokens()
    least = min(remaining for _, remaining in asked)
    steps = data.draw(st.integers(0, least))
    ended = [batch.produce(named(index), steps) for index in range(len(asked))]
    assert batch.peak_tokens() == before
    assert ended == [remaining == steps for _, remaining in asked]


@everywhere
@given(asked=st.lists(row, min_size=1, max_size=8), steps=st.integers(0, 300), data=st.data())
def test_produce_when_one_gets_on_then_the_rest_is_as_it_was(
    asked: Rows, steps: int, data: st.DataObject
) -> None:
    """Who produces more than was predicted holds more, and has nothing left to produce."""
    index = data.draw(st.integers(0, len(asked) - 1))
    batch = batch_of(asked)
    held, remaining = asked[index]
    assert batch.produce(named(index), steps) is (steps >= remaining)
    after = [*asked]
    after[index] = (held + steps, max(0, remaining - steps))
    assert batch.peak_tokens() == stepped_peak(after)


@everywhere
@given(asked=st.lists(row, min_size=1, max_size=8), data=st.data())
def test_lengthen_when_one_is_predicted_anew_then_replaces_the_old(
    asked: Rows, data: st.DataObject
) -> None:
    """A prediction may be replaced by a longer or a shorter one."""
    index = data.draw(st.integers(0, len(asked) - 1))
    remaining = data.draw(st.integers(0, 200))
    batch = batch_of(asked)
    batch.lengthen(named(index), remaining)
    after = [*asked]
    after[index] = (asked[index][0], remaining)
    assert batch.peak_tokens() == stepped_peak(after)


def test_strangers_when_named_then_nothing_happens() -> None:
    """A report on a request that has left is no mistake."""
    batch = batch_of([(10, 5)])
    stranger = reservation("stranger")
    batch.remove(stranger)
    batch.lengthen(stranger, 100)
    assert batch.produce(stranger, 100) is False
    assert (len(batch), batch.peak_tokens()) == (1, 15)


def test_batch_when_it_grows_beyond_its_first_slots_then_loses_nobody() -> None:
    """A candidate finds a place at every size, also where the slots have just been used up."""
    batch = BatchPeak()
    asked: Rows = []
    for index in range(200):
        candidate = (7 * index % 50, 11 * index % 40)
        assert batch.peak_tokens_with(*candidate) == stepped_peak([*asked, candidate])
        batch.add(named(index), held_tokens=candidate[0], remaining=candidate[1])
        asked.append(candidate)
    assert batch.peak_tokens() == stepped_peak(asked)


def test_batch_when_there_are_a_thousand_then_is_still_exact() -> None:
    """Large batches and lengths are summed without overflow or rounding."""
    asked = [(37 * index % 4_001, 53 * index % 1_999) for index in range(1_000)]
    batch = batch_of(asked)
    assert batch.peak_tokens() == stepped_peak(asked)
    for index in range(0, 1_000, 2):
        batch.remove(named(index))
    assert batch.peak_tokens() == stepped_peak(asked[1::2])
    huge = batch_of([(10**9, 10**9)] * 1_000)
    assert huge.peak_tokens() == 2 * 10**12


def test_peak_with_a_candidate_when_asked_again_then_sees_what_moved_meanwhile() -> None:
    """The same candidate is answered from memory only while nothing has moved."""
    batch, one, two = BatchPeak(), ReservationId("a"), ReservationId("b")
    batch.add(one, held_tokens=100, remaining=10)
    assert batch.peak_tokens_with(50, 5) == batch.peak_tokens_with(50, 5) == 160

    batch.lengthen(one, remaining=80)
    assert batch.peak_tokens_with(50, 5) == 180
    batch.produce(one, 30)
    assert batch.peak_tokens_with(50, 5) == 190
    batch.add(two, held_tokens=20, remaining=1)
    assert batch.peak_tokens_with(50, 5) == 203
    batch.remove(one)
    assert batch.peak_tokens_with(50, 5) == 72


def test_peak_when_somebody_asks_for_more_than_any_number_then_is_more_than_any_pool() -> None:
    """A declared maximum of a trillion tokens neither overruns a row nor looks small."""
    batch = BatchPeak()
    for index in range(3):
        batch.add(named(index), held_tokens=10**12, remaining=10**15)
    batch.produce(named(0), 5)
    batch.lengthen(named(1), 10**18)
    assert batch.peak_tokens() > 10**9
    assert batch.peak_tokens_with(10**20, 10**20) > batch.peak_tokens()
    for index in range(3):
        batch.remove(named(index))
    batch.add(named(3), held_tokens=10, remaining=5)
    assert (batch.peak_tokens(), batch.held_tokens) == (15, 10)


def test_remaining_when_requests_move_then_it_is_what_all_have_yet_to_produce() -> None:
    """Progress takes off, a new prediction replaces, and who has left counts no more."""
    batch = BatchPeak()
    for name, remaining in (("a", 100), ("b", 30)):
        batch.add(ReservationId(name), held_tokens=500, remaining=remaining)
    assert batch.remaining_tokens == 130
    batch.produce(ReservationId("a"), 40)
    batch.produce(ReservationId("b"), 50)
    assert batch.remaining_tokens == 60
    batch.lengthen(ReservationId("b"), 7)
    assert batch.remaining_tokens == 67
    batch.remove(ReservationId("a"))
    assert batch.remaining_tokens == 7
