"""May a queue be as long as the first token's bound allows?

Model: X = load of first attempts, in the least loaded of the last seconds, over the service rate. A
queue that a burst has filled is worked off again, and lets serve what would else be refused. One
that is refilled faster than it is served stands: its length buys little but waiting, and has to be
worked off when the load falls. S = share of about the last minute in which somebody was refused.
Rule: while X > 2 a newcomer may wait 1/2 + min(1/2, S^2) of the time that its first token may take.
Properties: a spike, which is over in a minute, leaves a short queue behind; what has lasted will
last, and gets its whole queue back after 74 s.
Trade-off: in a spike what is long to read is refused more often. Below twice the capacity that
would cost more than it gains, so milder overload keeps its queue.
Source: Nichols and Jacobson, Controlling queue delay, ACM Queue 10(5), 2012: good and bad queue.
"""

from __future__ import annotations

__all__ = ["wait_fraction"]

_STANDS_ABOVE = 2.0
_STANDING_FRACTION = 0.5


def wait_fraction(
    load_tokens_per_s: float, *, rate_tokens_per_s: float | None, short_fraction: float
) -> float:
    """Return the part of the first token's bound that newcomers may wait.

    Args:
        load_tokens_per_s: Of first attempts, without bursts.
        rate_tokens_per_s: Of service, None while unknown.
        short_fraction: Share of the last minute in which somebody was refused for want of room.
    """
    if rate_tokens_per_s is None or load_tokens_per_s <= _STANDS_ABOVE * rate_tokens_per_s:
        return 1.0
    return _STANDING_FRACTION + min(1.0 - _STANDING_FRACTION, short_fraction * short_fraction)
