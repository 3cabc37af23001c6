"""Client libraries: what each does with a refusal."""

from __future__ import annotations

import pytest

from tokenweir.core.decision import Reject
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.sim.clients import RETRY_NAMES, client_model
from tokenweir.sim.sdks import SDKS, SdkClients
from tokenweir.sim.turns import FIRST_TURN, Turn

S, MS = NS_PER_S, NS_PER_MS
TOLD_NOT_TO = Reject(ReasonCode.OVERLOAD_KV)


def told(delay_ns: Nanos) -> Reject:
    """Refuse with advice."""
    return Reject(ReasonCode.OVERLOAD_KV, retry_after_ns=delay_ns)


def course(name: str, reject: Reject | None, *, draw: float = 0.0) -> list[Nanos]:
    """Return the delays of a client that always gets the same answer."""
    delays, turn, age_ns = [], FIRST_TURN, 0
    while (back := SDKS[name].comeback(turn, draw=draw, reject=reject, age_ns=age_ns)) is not None:
        delays.append(back.delay_ns)
        turn, age_ns = back.turn, age_ns + back.delay_ns
    return delays


OBEDIENT = [
    "openai-python-3",
    "openai-python-1.99",
    "anthropic-python",
    "openai-npm-6",
    "openai-npm-7",
    "anthropic-npm",
]


@pytest.mark.parametrize("name", OBEDIENT)
def test_official_library_when_told_then_it_obeys_to_the_millisecond_twice(name: str) -> None:
    """None of them adds jitter to a delay that it was told."""
    assert course(name, told(300 * MS), draw=0.7) == [300 * MS] * 2


@pytest.mark.parametrize("name", OBEDIENT)
def test_official_library_when_told_not_to_then_it_gives_up_at_once(name: str) -> None:
    """``x-should-retry: false`` decides alone."""
    assert course(name, TOLD_NOT_TO) == []


def test_official_library_when_nothing_came_then_it_backs_off_with_jitter_downwards() -> None:
    """Half a second, then one, less up to a quarter."""
    assert course("openai-python-3", None) == [500 * MS, S]
    assert course("openai-python-3", None, draw=1.0) == [375 * MS, 750 * MS]


def test_wrapper_when_told_not_to_then_its_outer_loop_goes_on_all_the_same() -> None:
    """Two rounds of LangChain, three of LlamaIndex: the inner loops give up, not the outer."""
    assert course("langchain-with-retry", TOLD_NOT_TO) == [S]
    assert course("llamaindex", TOLD_NOT_TO) == [S, S]


def test_wrapper_when_always_told_to_come_back_then_its_attempts_multiply() -> None:
    """Six and twelve requests for one call."""
    assert len(course("langchain-with-retry", told(S))) == 5
    assert len(course("llamaindex", told(S))) == 11


def test_llamaindex_when_a_minute_has_passed_then_its_outer_loop_ends() -> None:
    """One round of four requests at 20 s each is a minute."""
    assert course("llamaindex", told(20 * S)) == [20 * S] * 3


def test_httpx_retries_when_told_then_it_reads_whole_seconds_and_nothing_else() -> None:
    """It knows no exact header and no ``x-should-retry``."""
    assert course("httpx-retries", told(300 * MS)) == [S] * 10
    assert course("httpx-retries", TOLD_NOT_TO) == [2 * MS] * 10


def test_wrapper_when_it_starts_a_round_then_it_numbers_attempts_from_nought_again() -> None:
    """What the gateway sees of an outer loop looks like a first attempt."""
    back = SDKS["llamaindex"].comeback(Turn(0, 3), draw=0.0, reject=told(S), age_ns=0)
    assert back is not None
    assert back.turn == Turn(1, 0)


def test_mix_when_drawn_then_each_library_has_its_share() -> None:
    """A client keeps its library, which its first draw chose."""
    mix = client_model("sdks", retries_max=2, timeout_ns=None)
    assert isinstance(mix, SdkClients)
    assert mix.draws_max == 13
    first, last = [0.0] * 13, [0.9999] * 13
    assert mix.counts_attempts(first)
    assert not mix.counts_attempts(last)
    assert mix.comeback(FIRST_TURN, 0, draws=last, reject=told(S), age_ns=0) is None
    assert sum(sdk.share for sdk in SDKS.values()) == pytest.approx(1.0)


def test_client_when_the_refusal_is_final_then_no_library_retries() -> None:
    """A 400 is not tried again."""
    for name in SDKS:
        clients = client_model(name, retries_max=2, timeout_ns=None)
        final = Reject(ReasonCode.TOO_LARGE)
        draws = [0.0] * clients.draws_max
        assert clients.comeback(FIRST_TURN, 0, draws=draws, reject=final, age_ns=0) is None


@pytest.mark.parametrize("name", RETRY_NAMES)
@pytest.mark.parametrize("delay_ns", [None, S, 60 * S])
def test_delays_when_taken_then_none_exceeds_the_longest_that_is_announced(
    name: str, delay_ns: Nanos | None
) -> None:
    """The clairvoyant bound counts attempts as late as they can come."""
    clients = client_model(name, retries_max=2, timeout_ns=None)
    reject = TOLD_NOT_TO if delay_ns is None else told(delay_ns)
    draws = [0.5] * clients.draws_max
    turn, age_ns, number = FIRST_TURN, 0, 0
    while True:
        back = clients.comeback(turn, number, draws=draws, reject=reject, age_ns=age_ns)
        if back is None:
            break
        age_ns += back.delay_ns
        turn, number = back.turn, number + 1
    longest = clients.longest_delays_ns()
    assert number <= len(longest)
    assert age_ns <= sum(longest)
