"""How much of each prompt has to be read, even with a cache that forgets nothing?

Model: the requests by arrival, one cache for all engines, and whole prefix blocks only.
Rule: a leading block counts as read already where an earlier request's prompt has it; the last
token of a prompt is always read.
Properties: whoever serves any of these requests, in any order, reads every block that is counted
here, and in time: the first request that has a block, if it is served well, has it read by itself
or by one that came later, before its own first token.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenweir.sim.traces import Arrival

__all__ = ["least_unread_tokens"]


def least_unread_tokens(arrivals: Sequence[Arrival]) -> list[int]:
    """Return the prompt tokens of each request that no cache could have spared, by arrival."""
    seen: set[int] = set()
    unread: list[int] = []
    for arrival in arrivals:
        prefix, prompt = arrival.prefix, arrival.prompt_tokens
        known = 0
        for block in prefix.ids[: prefix.spared_max(prompt)]:
            if block not in seen:
                break
            known += 1
        seen.update(prefix.whole(prompt))
        unread.append(prompt - known * prefix.block_tokens)
    return unread
