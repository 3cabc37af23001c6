"""Clients: when they come back, and when they stop."""

from __future__ import annotations

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.sim.clients import ClientModel, article_clients, client_model

S = 1_000_000_000


def _delays(model: ClientModel, *, advice_ns: int | None, draw: float = 0.0) -> list[int | None]:
    return [
        model.retry_delay_ns(n, draw=draw, advice_ns=advice_ns, is_refused=True) for n in range(4)
    ]


def test_article_clients_when_refused_then_they_double_their_delay_three_times() -> None:
    """With probability 0.8 after 0.2, 0.4 and 0.8 s, then never."""
    model = article_clients()
    assert _delays(model, advice_ns=None) == [200_000_000, 400_000_000, 800_000_000, None]
    assert _delays(model, advice_ns=None, draw=0.81) == [None] * 4


def test_obeying_client_when_told_then_it_waits_so_long_and_else_backs_off() -> None:
    """Retry-After decides; a refusal without advice ends the attempts; a timeout does not."""
    model = client_model("obey", retries_max=2, timeout_ns=None)
    assert _delays(model, advice_ns=7 * S) == [7 * S, 7 * S, None, None]
    assert _delays(model, advice_ns=None) == [None] * 4
    after_timeout = model.retry_delay_ns(1, draw=0.0, advice_ns=None, is_refused=False)
    assert after_timeout == S


def test_client_model_when_retry_is_unknown_then_the_error_lists_them() -> None:
    """The text names what is allowed."""
    with pytest.raises(ConfigError, match="none, fixed, exponential, obey"):
        client_model("stubborn", retries_max=1, timeout_ns=None)


def test_client_when_it_never_retries_then_nothing_is_drawn() -> None:
    """The default client gives up at once."""
    assert _delays(ClientModel(), advice_ns=S) == [None] * 4


def test_exponential_clients_when_they_go_on_then_no_delay_exceeds_a_minute() -> None:
    """Twenty retries do not take longer than the universe has."""
    model = client_model("exponential", retries_max=20, timeout_ns=None)
    delays = [model.retry_delay_ns(n, draw=0.0, advice_ns=None, is_refused=True) for n in range(20)]
    assert delays[7] == 25_600_000_000
    assert max(delay or 0 for delay in delays) == 60 * S


@pytest.mark.parametrize("retries", [-1, 21, 10**12])
def test_client_model_when_retries_are_out_of_range_then_the_error_says_what_is_allowed(
    retries: int,
) -> None:
    """A client that never gives up would be a run that never ends."""
    with pytest.raises(ConfigError, match="allowed: 0 to 20"):
        client_model("fixed", retries_max=retries, timeout_ns=None)
