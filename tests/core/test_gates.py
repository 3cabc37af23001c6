"""The questions of admission, and their order."""

import pytest

from tests.core.support import S, account_with, request
from tokenweir.core.account import Account
from tokenweir.core.capacity.token_reservation import TokenReservation
from tokenweir.core.cost import declared
from tokenweir.core.gates import (
    GATES,
    Candidate,
    first_refusal,
    is_in_time,
    is_open,
    is_possible,
    is_served,
    may_retry,
)
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request
from tokenweir.core.units import Nanos

NOW_NS: Nanos = 10 * S


def candidate(
    asked: Request | None = None,
    *,
    accounts: tuple[Account, ...] | None = None,
    is_draining: bool = False,
) -> Candidate:
    """Build a candidate at 10 s before one healthy replica of 1,000 tokens."""
    asked = asked or request("r")
    return Candidate(
        asked,
        declared(asked),
        TokenReservation(),
        (account_with(),) if accounts is None else accounts,
        is_draining,
        NOW_NS,
    )


def unhealthy(*, kv_tokens: int | None = 1_000) -> Account:
    """Build the account of a replica that is down."""
    account = account_with(kv_tokens=kv_tokens)
    account.is_healthy = False
    return account


def test_gates_when_listed_then_ask_in_this_order() -> None:
    """What is final for the caller is said before what may pass."""
    assert (is_open, is_possible, is_in_time, is_served, may_retry) == GATES


def test_gates_when_nothing_is_wrong_then_let_pass() -> None:
    """An ordinary request passes every gate, also one with time left."""
    assert first_refusal(candidate()) is None
    assert first_refusal(candidate(request("r", deadline_ns=NOW_NS + 1))) is None


def test_gate_when_draining_then_refuses() -> None:
    """A pool that is shut down takes nothing."""
    assert first_refusal(candidate(is_draining=True)) is ReasonCode.DRAINING


def test_gate_when_the_prompt_fits_nowhere_then_is_too_large() -> None:
    """A prompt over the largest pool can never be served, whatever output is asked for."""
    asked = request("r", prompt_tokens=950, output_tokens_max=1)
    assert first_refusal(candidate(asked)) is ReasonCode.TOO_LARGE


def test_gate_when_only_the_output_is_too_long_then_says_so() -> None:
    """A caller who can be served by asking for less is told so."""
    asked = request("r", prompt_tokens=949, output_tokens_max=2)
    assert first_refusal(candidate(asked)) is ReasonCode.OUTPUT_MAX_TOO_LARGE
    assert first_refusal(candidate(request("r", prompt_tokens=949, output_tokens_max=1))) is None


def test_gate_when_one_replica_could_hold_it_then_is_not_too_large() -> None:
    """The largest replica decides, healthy or not, and an unknown one gets the benefit."""
    asked = request("r", prompt_tokens=5_000)
    for kv_tokens in (10_000, None):
        accounts = (account_with(), unhealthy(kv_tokens=kv_tokens))
        assert first_refusal(candidate(asked, accounts=accounts)) is None


def test_gate_when_down_replicas_are_too_small_then_is_too_large() -> None:
    """A request that fits nowhere is not told to come back when the pool is up again."""
    asked = request("r", prompt_tokens=5_000)
    assert first_refusal(candidate(asked, accounts=(unhealthy(),))) is ReasonCode.TOO_LARGE


@pytest.mark.parametrize("deadline_ns", [0, NOW_NS - 1, NOW_NS])
def test_gate_when_it_is_too_late_already_then_refuses(deadline_ns: Nanos) -> None:
    """What nobody waits for any more is not begun."""
    asked = request("r", deadline_ns=deadline_ns)
    assert first_refusal(candidate(asked)) is ReasonCode.DEADLINE_UNREACHABLE


@pytest.mark.parametrize("accounts", [(), (unhealthy(),), (unhealthy(), unhealthy())])
def test_gate_when_no_replica_is_healthy_then_refuses(accounts: tuple[Account, ...]) -> None:
    """Nothing can serve, which is not the caller's doing."""
    assert first_refusal(candidate(accounts=accounts)) is ReasonCode.NO_HEALTHY_REPLICA


def test_gates_when_everything_is_wrong_then_the_first_answers() -> None:
    """One reason is given, that of the first gate which refuses."""
    asked = request("r", prompt_tokens=5_000, deadline_ns=0)
    accounts = (unhealthy(),)
    draining = candidate(asked, accounts=accounts, is_draining=True)
    assert first_refusal(draining) is ReasonCode.DRAINING
    assert first_refusal(candidate(asked, accounts=accounts)) is ReasonCode.TOO_LARGE
    late = candidate(request("r", deadline_ns=0), accounts=accounts)
    assert first_refusal(late) is ReasonCode.DEADLINE_UNREACHABLE
