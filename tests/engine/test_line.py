"""The waiting line against a plain list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.engine.line import WaitingLine
from tokenweir.engine.sequence import Sequence

_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["back", "front"]), st.integers(1, 900)),
        st.tuples(st.just("remove"), st.integers(0, 10_000)),
        st.tuples(st.just("fit"), st.integers(0, 1_000)),
    ),
    max_size=200,
)


@given(_OPERATIONS)
@settings(max_examples=150, deadline=None)
def test_line_when_used_in_any_order_then_it_answers_as_a_list_would(
    operations: list[tuple[str, int]],
) -> None:
    """Head, first fitting, count and tokens are those of a list that is walked."""
    line, model = WaitingLine(), []
    for number, (what, value) in enumerate(operations):
        if what in ("back", "front"):
            sequence = Sequence(str(number), prompt_tokens=value, output_tokens=1)
            if what == "back":
                line.push_back(sequence)
                model.append(sequence)
            else:
                line.push_front(sequence)
                model.insert(0, sequence)
        elif what == "remove" and model:
            line.remove(model.pop(value % len(model)))
        elif what == "fit":
            expected = next((s for s in model if s.prefill_tokens <= value), None)
            assert line.first_fitting(value) is expected
        assert line.head() is (model[0] if model else None)
        assert line.count == len(model)
        assert line.tokens == sum(s.prefill_tokens for s in model)


def test_line_when_it_outgrows_its_slots_then_order_is_kept() -> None:
    """Many more entries on both sides than the first slots hold come out in order."""
    line = WaitingLine()
    for number in range(2_000):
        line.push_back(Sequence(f"b{number}", prompt_tokens=1, output_tokens=1))
        line.push_front(Sequence(f"f{number}", prompt_tokens=1, output_tokens=1))
    seen = []
    while (head := line.head()) is not None:
        seen.append(head.sequence_id)
        line.remove(head)
    expected = [f"f{n}" for n in reversed(range(2_000))] + [f"b{n}" for n in range(2_000)]
    assert seen == expected
