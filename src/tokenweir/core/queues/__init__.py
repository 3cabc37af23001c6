"""Who waits, in what order, and for how long at most? One file per part, one row per ordering."""

from __future__ import annotations

from tokenweir.core.queues.band import Ahead
from tokenweir.core.queues.entry import QueueEntry
from tokenweir.core.queues.limits import QueueLimits
from tokenweir.core.queues.orderings import ORDERINGS, Ordering, ordering
from tokenweir.core.queues.pool_queue import Head, PoolQueue

__all__ = [
    "ORDERINGS",
    "Ahead",
    "Head",
    "Ordering",
    "PoolQueue",
    "QueueEntry",
    "QueueLimits",
    "ordering",
]
