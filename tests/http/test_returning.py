"""What a request tells of the attempts before it."""

from __future__ import annotations

import pytest

from tokenweir.core.request import Request, ReturnTicket
from tokenweir.core.units import NS_PER_S
from tokenweir.http.returning import TICKET_HEADER, Tickets, attempt_number, body_hash

ASKED = Request("r", 10, 10, tenant="a", body_hash=body_hash(b"{}"))
TICKET = ReturnTicket(3, 5 * NS_PER_S, 8 * NS_PER_S)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([(b"x-stainless-retry-count", b"0")], 0),
        ([(b"x-stainless-retry-count", b"2")], 2),
        ([(b"x-stainless-retry-count", b"2"), (b"x-tokenweir-attempt", b"1")], 1),
        ([(b"x-stainless-retry-count", b"-1")], None),
        ([(b"x-stainless-retry-count", b"")], None),
        ([(b"x-stainless-retry-count", b"9999")], None),
        ([(b"x-tokenweir-attempt", b"one")], None),
    ],
)
def test_attempt_when_told_then_is_read_and_what_is_not_sane_is_not(
    headers: list[tuple[bytes, bytes]], expected: int | None
) -> None:
    """Ours first, then what the common libraries send."""
    assert attempt_number(headers) == expected


def test_body_when_hashed_then_equal_bodies_are_equal_and_no_text_is_left() -> None:
    """16 bytes, whatever the size."""
    assert body_hash(b"a" * 10_000) == body_hash(b"a" * 10_000) != body_hash(b"b")
    assert len(body_hash(b"")) == 16


def test_ticket_when_it_comes_back_with_its_body_then_counts_in_another_process_too() -> None:
    """Two gateways share a key and a clock, their own clocks began at different times."""
    one = Tickets([b"k" * 32], clock_offset_ns=100 * NS_PER_S)
    two = Tickets([b"n" * 32, b"k" * 32], clock_offset_ns=70 * NS_PER_S)
    headers = one.header_for(TICKET, ASKED)
    assert one.with_ticket(ASKED, headers).ticket == TICKET
    assert two.with_ticket(ASKED, headers).ticket == ReturnTicket(3, 35 * NS_PER_S, 38 * NS_PER_S)


@pytest.mark.parametrize("value", [b"", b"x", b"\xff" * 76, b"A" * 76, b"A" * 10_000])
def test_ticket_when_it_is_made_up_then_is_as_if_it_were_not_there(value: bytes) -> None:
    """Anything can be sent."""
    asked = Tickets([b"k" * 32]).with_ticket(ASKED, [(TICKET_HEADER, value)])
    assert asked is ASKED
