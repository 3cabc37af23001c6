"""Tickets: proof that a client was told to come back now."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import S
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority, ReturnTicket
from tokenweir.core.returns.ticket import SpentTickets, binding, seal, unseal

KEY, OTHER = b"k" * 16, b"o" * 32
BOUND = binding("tenant", priority=Priority.P1, body_hash=b"hash")
TICKET = ReturnTicket(7, 2 * S, 5 * S)


def test_ticket_when_sealed_then_is_believed_by_whoever_has_the_key() -> None:
    """What goes out comes back."""
    text = seal(TICKET, bound_to=BOUND, key=KEY)
    assert unseal(text, bound_to=BOUND, keys=[KEY]) == TICKET
    assert text.isascii()
    assert len(text) < 100


def test_ticket_when_the_key_was_rotated_then_the_old_one_is_still_believed() -> None:
    """The first key seals, all are tried."""
    text = seal(TICKET, bound_to=BOUND, key=KEY)
    assert unseal(text, bound_to=BOUND, keys=[OTHER, KEY]) == TICKET
    assert unseal(text, bound_to=BOUND, keys=[OTHER]) is None


@pytest.mark.parametrize(
    "bound_to",
    [
        binding("other", priority=Priority.P1, body_hash=b"hash"),
        binding("tenant", priority=Priority.P0, body_hash=b"hash"),
        binding("tenant", priority=Priority.P1, body_hash=b"else"),
        binding("tenanth", priority=Priority.P1, body_hash=b"ash"),
    ],
)
def test_ticket_when_shown_for_something_else_then_is_not_believed(bound_to: bytes) -> None:
    """It is bound to tenant, class and body."""
    text = seal(TICKET, bound_to=BOUND, key=KEY)
    assert unseal(text, bound_to=bound_to, keys=[KEY]) is None


@settings(deadline=None, print_blob=True)
@given(text=st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda b: b.hex())))
def test_ticket_when_made_up_then_is_not_believed_and_raises_nothing(text: str) -> None:
    """Anything can be sent in a header."""
    assert unseal(text, bound_to=BOUND, keys=[KEY]) is None


@settings(deadline=None, print_blob=True)
@given(position=st.integers(0, 75), letter=st.sampled_from("ABCxyz019-_"))
def test_ticket_when_a_letter_is_changed_then_is_not_believed(position: int, letter: str) -> None:
    """Every bit of it is under the seal."""
    text = seal(TICKET, bound_to=BOUND, key=KEY)
    changed = text[:position] + letter + text[position + 1 :]
    believed = unseal(changed, bound_to=BOUND, keys=[KEY])
    assert believed is None or changed == text


def test_key_when_too_short_then_the_error_says_what_is_allowed() -> None:
    """A guessable key would be no key."""
    with pytest.raises(ConfigError, match="allowed: 16 or more"):
        seal(TICKET, bound_to=BOUND, key=b"short")


def test_ticket_when_used_then_is_good_no_more_and_forgotten_once_it_is_over() -> None:
    """Single use, in a memory that empties."""
    spent = SpentTickets(items_max=10)
    assert not spent.is_good(TICKET, now_ns=2 * S - 1)
    assert spent.is_good(TICKET, now_ns=2 * S)
    spent.spend(TICKET)
    assert not spent.is_good(TICKET, now_ns=3 * S)
    assert not spent.is_good(TICKET, now_ns=5 * S)
    assert len(spent) == 0


def test_tickets_when_the_memory_is_full_then_none_counts_until_there_is_room() -> None:
    """Forgetting a used one would let it be used again."""
    spent = SpentTickets(items_max=1)
    spent.spend(TICKET)
    other = ReturnTicket(8, 2 * S, 9 * S)
    assert not spent.is_good(other, now_ns=3 * S)
    assert spent.is_good(other, now_ns=5 * S)
