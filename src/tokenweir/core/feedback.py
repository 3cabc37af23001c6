"""What does the course of a request tell about its replica and about our predictions?

Each function takes one thing in: a first token and the pace for the outer limit (see ``aimd``), the
end for the headroom (see ``headroom``). Times count from dispatch: our own queue is left out, and
so is the whole length of an answer.
"""

from __future__ import annotations

from tokenweir.core.account import Account
from tokenweir.core.aimd import AimdLimit
from tokenweir.core.guards import reading_ns, unread_left
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.reservation import Reservation
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["note_end", "note_entry", "note_first_token", "note_pace"]

# Over shorter spans the pace would be that of our reports and not of the tokens.
_PACE_SPAN_NS = NS_PER_S


def note_entry(reservation: Reservation, account: Account) -> None:
    """Remember what the profile says of a request that is sent now; its sums are in already."""
    account.note_entry()
    if account.learns_slowness:
        tokens, pairs = unread_left(account, now_ns=reservation.start_ns)
        predicted_ns = reading_ns(tokens, account, pairs=pairs) or 0
        reservation.predicted_first_ns = int(predicted_ns / account.slowness.ratio)


def note_first_token(reservation: Reservation, account: Account, *, now_ns: Nanos) -> None:
    """Take in a first token, unless progress came before it: then nobody knows when it came."""
    if not reservation.is_prefilling:
        return
    account.slowness.note(
        now_ns - reservation.start_ns, predicted_ns=reservation.predicted_first_ns, now_ns=now_ns
    )
    if account.limit is not None:
        account.limit.note_first_token(
            now_ns - reservation.start_ns,
            unloaded_ns=account.unloaded_first_token_ns(reservation.estimate.prompt_tokens),
            now_ns=now_ns,
        )


def note_pace(reservation: Reservation, limit: AimdLimit, *, now_ns: Nanos) -> None:
    """Take in the pace that a stream has kept since its first token, when that is due.

    That is what its client was promised. The pace of the last second swings with every long prompt
    that is read beside it.
    """
    reservation.pace_due_ns = now_ns + _PACE_SPAN_NS
    since_ns = reservation.paced_ns
    if since_ns is None:
        reservation.paced_ns, reservation.paced_tokens = now_ns, reservation.held_tokens
    else:
        tokens = reservation.held_tokens - reservation.paced_tokens
        limit.note_pace((now_ns - since_ns) / tokens, now_ns=now_ns)


def note_end(
    reservation: Reservation, account: Account, *, usage: Usage, outcome: Outcome, now_ns: Nanos
) -> None:
    """Take in how wrong an estimate was, or how long a request was left without an answer.

    An answer that was cut short, or whose estimate was a guess, says nothing of the former; one
    that came whole and told no first token says nothing of the latter.
    """
    if not outcome.is_early:
        if not reservation.is_guess:
            account.headroom.note_end(
                reserved_tokens=reservation.estimate.tokens, used_tokens=usage.tokens
            )
    elif account.limit is not None and reservation.is_prefilling:
        account.limit.note_unanswered(
            now_ns - reservation.start_ns,
            unloaded_ns=account.unloaded_first_token_ns(reservation.estimate.prompt_tokens),
            now_ns=now_ns,
        )
