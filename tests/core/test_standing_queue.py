"""How long a queue may be when more comes than can be served."""

from __future__ import annotations

import pytest

from tokenweir.core.standing_queue import wait_fraction


@pytest.mark.parametrize(
    ("load", "rate", "expected"),
    [
        (0.0, 100.0, 1.0),
        (200.0, 100.0, 1.0),
        (201.0, 100.0, 0.5),
        (1e9, 100.0, 0.5),
        (1e9, None, 1.0),
    ],
)
def test_wait_when_the_load_is_lasting_then_is_shorter_than_in_a_burst(
    load: float, rate: float | None, expected: float
) -> None:
    """A queue that is refilled faster than it is served buys nothing but waiting."""
    assert wait_fraction(load, rate_tokens_per_s=rate) == expected
