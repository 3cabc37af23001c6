"""What is remembered of refusals."""

import dataclasses

import pytest

from tests.core.support import request
from tokenweir.core.audit import Refusal, RefusalAudit, prompt_bucket
from tokenweir.core.reasons import ReasonCode


def audit_of(refusals: int, *, rows_max: int = 1_000) -> RefusalAudit:
    """Build an audit that has seen this many refusals of 100 prompt tokens."""
    audit = RefusalAudit(rows_max=rows_max)
    for index in range(refusals):
        audit.note(
            request(f"r{index}"),
            ReasonCode.QUEUE_FULL,
            occupied_tokens=7,
            is_enforced=True,
            now_ns=index,
        )
    return audit


def test_rows_when_more_than_a_thousand_then_the_last_thousand_are_kept() -> None:
    """The list has a bound; the oldest makes room."""
    rows = audit_of(1_500).rows()
    assert [row.request_id for row in rows] == [f"r{index}" for index in range(500, 1_500)]


def test_counts_when_more_than_a_thousand_then_all_are_counted() -> None:
    """What the list forgets the counts do not."""
    assert audit_of(1_500).counts == {(ReasonCode.QUEUE_FULL, "<=256"): 1_500}


def test_row_when_noted_then_says_who_how_much_and_why() -> None:
    """A refusal can be explained later, from sizes and codes alone."""
    assert audit_of(1).rows() == (
        Refusal(
            refused_ns=0,
            request_id="r0",
            tenant="default",
            prompt_tokens=100,
            output_tokens_max=100,
            occupied_tokens=7,
            reason=ReasonCode.QUEUE_FULL,
            is_enforced=True,
        ),
    )


def test_row_when_its_fields_are_listed_then_none_can_carry_a_prompt() -> None:
    """Text has no place in the audit."""
    texts = {f.name for f in dataclasses.fields(Refusal) if f.type == "str"}
    assert texts == {"request_id", "tenant"}


@pytest.mark.parametrize(
    ("prompt_tokens", "label"),
    [
        (0, "<=256"),
        (256, "<=256"),
        (257, "<=1k"),
        (1_024, "<=1k"),
        (1_025, "<=4k"),
        (4_096, "<=4k"),
        (16_384, "<=16k"),
        (16_385, ">16k"),
        (10**9, ">16k"),
    ],
)
def test_bucket_when_at_a_bound_then_the_bound_belongs_to_it(
    prompt_tokens: int, label: str
) -> None:
    """Buckets are closed above, and the last one is open."""
    assert prompt_bucket(prompt_tokens) == label
