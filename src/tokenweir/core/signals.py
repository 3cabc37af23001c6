"""What does an engine say about itself, and when did it say so?"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.units import Nanos, ReplicaId

__all__ = ["Signals"]


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at one replica; what the engine does not tell is None.

    Attributes:
        replica: Whose signals these are.
        scraped_ns: When the engine's answer was true, not when it was read.
        is_healthy: False stops dispatch to this replica until a healthy look.
        kv_used_tokens: KV tokens the engine holds.
        kv_tokens: Size of its KV pool.
        waiting_prompt_tokens: Prompt tokens accepted by the engine that hold no KV yet.
        running: Requests in its batch.
        waiting: Requests in its own queue.
        preemptions_total: Counter since its start.
    """

    replica: ReplicaId
    scraped_ns: Nanos
    is_healthy: bool = True
    kv_used_tokens: int | None = None
    kv_tokens: int | None = None
    waiting_prompt_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions_total: int | None = None
