"""How long a queue may be when more comes than can be served."""

from __future__ import annotations

import pytest

from tokenweir.core.standing_queue import wait_fraction


@pytest.mark.parametrize(
    ("load", "rate", "short", "expected"),
    [
        (0.0, 100.0, 0.0, 1.0),
        (200.0, 100.0, 0.0, 1.0),
        (201.0, 100.0, 0.0, 0.5),
        (1e9, 100.0, 0.0, 0.5),
        (1e9, None, 0.0, 1.0),
        (1e9, 100.0, 0.5, 0.75),
        (1e9, 100.0, 0.8, 1.0),
    ],
)
def test_wait_when_a_queue_stands_then_is_shorter_until_that_has_lasted(
    load: float, rate: float | None, short: float, expected: float
) -> None:
    """A queue that is refilled faster than it is served buys little but waiting."""
    assert wait_fraction(load, rate_tokens_per_s=rate, short_fraction=short) == expected
