"""In which order do one tenant's waiting requests enter?

Model: each entry gets a key when it comes; the smallest enters first, ties by arrival. Ageing needs
no updates: credit grows equally for all who wait, so cost + rate x arrival time orders as cost -
rate x age would.
Rule: ``fifo`` by arrival; ``shortest_with_ageing`` by predicted tokens, less 100 tokens of credit
for each second waited: one a step of 10 ms; ``earliest_deadline`` by when the first
token is due: the SLO's bound for this prompt, or an earlier deadline of its own. Where all prompts
have the same bound that is the order of arrival.
Trade-off: cheapest first serves more requests and fewer long ones; it is for who counts requests.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenweir.core.errors import ConfigError
from tokenweir.core.queues.entry import QueueEntry
from tokenweir.core.units import NS_PER_S

__all__ = ["ORDERINGS", "Ordering", "ordering"]

Ordering = Callable[[QueueEntry], float]

_AGEING_TOKENS_PER_S = 100


def _fifo(entry: QueueEntry) -> float:
    return float(entry.first_ns)


def _shortest_with_ageing(entry: QueueEntry) -> float:
    return entry.size_tokens + entry.enqueued_ns * _AGEING_TOKENS_PER_S / NS_PER_S


def _earliest_deadline(entry: QueueEntry) -> float:
    return float(entry.due_ns)


ORDERINGS: dict[str, Ordering] = {
    "fifo": _fifo,
    "shortest_with_ageing": _shortest_with_ageing,
    "earliest_deadline": _earliest_deadline,
}


def ordering(name: str) -> Ordering:
    """Return an ordering by name.

    Raises:
        ConfigError: No such row in ``ORDERINGS``.
    """
    try:
        return ORDERINGS[name]
    except KeyError:
        raise ConfigError(f"unknown ordering {name!r}, allowed: {', '.join(ORDERINGS)}") from None
