"""The desk: who is a first attempt, who returns at its time, who retries unasked."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.support import MS, FixedRng, S
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request
from tokenweir.core.returns import ReturnConfig, ReturnDesk, Slot, Standing, ticket_of
from tokenweir.core.units import Nanos

COST = 1_000


def desk_of(**settings_: object) -> ReturnDesk:
    """Return a desk at which everybody weighs the same."""
    return ReturnDesk(ReturnConfig(**settings_), weight_of=lambda _: 1.0)  # type: ignore[arg-type]


def ask(attempt: int = 0, *, counts: bool = True, body: bytes = b"body") -> Request:
    """Return an attempt of one and the same request."""
    return Request("r", 900, 100, attempt=attempt, counts_attempts=counts, body_hash=body)


def refused(
    desk: ReturnDesk, request: Request, *, now_ns: Nanos = 0, wait_ns: Nanos = 0
) -> Slot | None:
    """Refuse a request for want of room."""
    return desk.advise(
        request,
        cost_tokens=COST,
        rate_tokens_per_s=10_000.0,
        wait_ns=wait_ns,
        now_ns=now_ns,
        rng=FixedRng(),
    )


def enter(desk: ReturnDesk, request: Request, *, now_ns: Nanos) -> Standing:
    """Let a request pass the desk."""
    comer = desk.look(request, now_ns=now_ns)
    desk.enter(request, comer, cost_tokens=COST, now_ns=now_ns)
    return comer.standing


def slot_after_refusal(desk: ReturnDesk, request: Request) -> Slot:
    """Refuse a request that gets a slot."""
    slot = refused(desk, request)
    assert slot is not None
    return slot


@pytest.mark.parametrize("counts", [True, False])
def test_return_when_it_comes_at_its_time_then_is_recognised_by_its_body(counts: bool) -> None:
    """No ticket is needed, with or without a number of the attempt; and it counts once."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask(counts=counts))
    again = ask(1 if counts else 0, counts=counts)
    assert enter(desk, again, now_ns=slot.told_ns) is Standing.IN_SLOT
    assert enter(desk, again, now_ns=slot.told_ns) is not Standing.IN_SLOT


def test_return_when_another_body_comes_then_is_not_taken_for_it() -> None:
    """The slot waits for its owner."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    assert enter(desk, ask(1, body=b"other"), now_ns=slot.told_ns) is Standing.UNPACED
    assert enter(desk, ask(0, body=b"third"), now_ns=slot.told_ns) is Standing.FIRST
    assert enter(desk, ask(1), now_ns=slot.told_ns) is Standing.IN_SLOT


def test_return_when_it_is_early_then_is_charged_and_loses_its_slot() -> None:
    """If refused again it stands behind the others."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    assert enter(desk, ask(1), now_ns=slot.opens_ns - 1) is Standing.EARLY
    assert len(desk.slots) == 0
    again = refused(desk, ask(1), now_ns=slot.opens_ns - 1)
    assert again is not None
    assert again.opens_ns > slot.opens_ns


def test_return_when_it_is_late_then_is_a_retry_like_any_other() -> None:
    """Its slot was released."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    assert enter(desk, ask(1), now_ns=slot.closes_ns) is Standing.UNPACED


def test_outer_loop_when_it_numbers_from_nought_again_then_is_a_retry_all_the_same() -> None:
    """Its body was refused a moment ago; a minute later it is another request."""
    desk = desk_of()
    slot_after_refusal(desk, ask())
    assert desk.look(ask(0), now_ns=900 * MS - 1).standing is Standing.FIRST
    assert desk.look(ask(0), now_ns=60 * S - 1).standing is Standing.UNPACED
    assert desk.look(ask(0), now_ns=60 * S).standing is Standing.FIRST


def test_client_when_it_tells_no_number_and_comes_early_then_keeps_its_slot() -> None:
    """It is charged; its slot may be another's with an equal body."""
    desk = desk_of()
    slot = refused(desk, ask(counts=False), wait_ns=5 * S)
    assert slot is not None
    assert enter(desk, ask(counts=False), now_ns=slot.opens_ns - 1) is Standing.UNPACED
    assert enter(desk, ask(counts=False), now_ns=slot.told_ns) is Standing.IN_SLOT


def test_equal_bodies_when_refused_more_often_than_one_client_asks_then_none_is_charged() -> None:
    """Different users' equal requests cannot be told from retries."""
    desk = desk_of()
    for _ in range(13):
        refused(desk, ask())
    assert desk.look(ask(0), now_ns=S).standing is Standing.FIRST


def test_body_when_it_was_admitted_then_comes_as_a_first_attempt_again() -> None:
    """What was served is not retried; who asks the same again has a new request."""
    desk = desk_of()
    refused(desk, ask())
    desk.note_admitted(ask(1), cost_tokens=COST, now_ns=S)
    assert desk.look(ask(0), now_ns=S).standing is Standing.FIRST


def test_refused_bodies_when_they_are_too_many_then_the_oldest_is_forgotten() -> None:
    """The memory is bounded."""
    desk = desk_of(slots_max=2)
    for body in (b"a", b"b", b"c"):
        refused(desk, ask(body=body))
    standings = [desk.look(ask(body=body), now_ns=S).standing for body in (b"a", b"b", b"c")]
    assert standings == [Standing.FIRST, Standing.UNPACED, Standing.UNPACED]


def test_ticket_when_shown_in_its_slot_then_counts_once_and_uses_the_slot_up() -> None:
    """Whether by ticket or by body, a slot is used once."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    holder = dataclasses.replace(ask(1), ticket=ticket_of(slot))
    assert enter(desk, holder, now_ns=slot.told_ns) is Standing.IN_SLOT
    assert len(desk.slots) == 0
    assert enter(desk, holder, now_ns=slot.told_ns) is Standing.UNPACED


def test_ticket_when_the_slot_was_used_by_body_then_counts_no_more() -> None:
    """Its owner came without it, and tries to come again with it."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    assert enter(desk, ask(1), now_ns=slot.told_ns) is Standing.IN_SLOT
    holder = dataclasses.replace(ask(1), ticket=ticket_of(slot))
    assert enter(desk, holder, now_ns=slot.told_ns) is Standing.UNPACED


def test_ticket_when_another_gateway_gave_it_then_counts_here_too() -> None:
    """The edge has checked the seal."""
    elsewhere, here = desk_of(), desk_of()
    slot = slot_after_refusal(elsewhere, ask())
    slot_after_refusal(here, ask(body=b"mine"))
    holder = dataclasses.replace(ask(1), ticket=ticket_of(slot))
    assert enter(here, holder, now_ns=slot.told_ns) is Standing.IN_SLOT


def test_ticket_when_it_is_early_then_the_ticket_and_its_slot_are_lost() -> None:
    """Asking before the time gains nothing."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    holder = dataclasses.replace(ask(1), ticket=ticket_of(slot))
    assert enter(desk, holder, now_ns=slot.opens_ns - 1) is Standing.EARLY
    assert enter(desk, holder, now_ns=slot.told_ns) is Standing.UNPACED


def refusal(desk: ReturnDesk, request: Request, *, now_ns: Nanos) -> ReasonCode | None:
    """Ask the desk whether a request may pass, and let it."""
    comer = desk.look(request, now_ns=now_ns)
    reason = desk.refusal(request, comer, cost_tokens=COST, now_ns=now_ns)
    if reason is None:
        desk.enter(request, comer, cost_tokens=COST, now_ns=now_ns)
    return reason


def test_budget_when_the_pool_is_short_then_unpaced_retries_are_refused_beyond_it() -> None:
    """Ten in ten seconds, where nothing was admitted."""
    desk = desk_of()
    refused(desk, ask(body=b"else"))
    reasons = [refusal(desk, ask(1), now_ns=S) for _ in range(12)]
    assert reasons == [None] * 10 + [ReasonCode.RETRY_BUDGET_EXHAUSTED] * 2


def test_budget_when_the_pool_was_not_short_lately_then_is_not_asked() -> None:
    """A retry that takes nobody's place does no harm."""
    desk = desk_of()
    refused(desk, ask(body=b"else"))
    assert {refusal(desk, ask(1), now_ns=11 * S) for _ in range(50)} == {None}


def test_budget_when_it_is_used_up_then_a_return_in_its_slot_passes_all_the_same() -> None:
    """It is paced already."""
    desk = desk_of()
    slot = slot_after_refusal(desk, ask())
    while refusal(desk, ask(1, body=b"storm"), now_ns=slot.told_ns) is None:
        pass
    assert refusal(desk, ask(1), now_ns=slot.told_ns) is None


def test_attempts_when_they_are_more_than_three_then_are_refused_and_told_so_before() -> None:
    """The third refusal gives no slot, since a fourth attempt would be refused."""
    desk = desk_of()
    assert refused(desk, ask(1)) is not None
    assert refused(desk, ask(2)) is None
    assert refusal(desk, ask(2), now_ns=0) is None
    assert refusal(desk, ask(3), now_ns=0) is ReasonCode.ATTEMPTS_EXHAUSTED
