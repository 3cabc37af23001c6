"""What does the simulator keep of one engine of its pool?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenweir.core.profile import EngineProfile
from tokenweir.core.signals import Signals
from tokenweir.core.units import Nanos, ReplicaId, div_ceil
from tokenweir.engine.batch import Engine, StepResult
from tokenweir.engine.block_batch import BlockEngine

__all__ = ["KV_MODELS", "NEVER", "EngineTotals", "Replica"]

NEVER: Nanos = 1 << 62

# How an engine holds KV: a prompt's as a whole, in blocks, or in blocks and with a prefix cache.
KV_MODELS: dict[str, Callable[..., Engine]] = {
    "whole": Engine,
    "blocks": partial(BlockEngine, has_prefix_cache=False),
    "prefix_cache": BlockEngine,
}


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """What one engine did in a run, in tokens.

    Attributes:
        replica_id: Whose.
        worked_tokens: Worked on.
        recomputed_tokens: Of them, work that preemption had undone.
        preemptions: How often it took a request's KV.
        entered_prompt_tokens: Of the prompts that it began, where it counts them.
        spared_tokens: Of those, what it found in its prefix cache and did not read.
    """

    replica_id: ReplicaId
    worked_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    entered_prompt_tokens: int = 0
    spared_tokens: int = 0


class Replica:
    """One engine and its clock."""

    __slots__ = (
        "_before",
        "_build",
        "boundary_ns",
        "engine",
        "fresh",
        "is_up",
        "profile",
        "replica_id",
        "reported_ns",
        "running_step",
    )

    def __init__(
        self, replica_id: ReplicaId, profile: EngineProfile, *, kv: str, discipline: str
    ) -> None:
        """Start an idle engine.

        Args:
            replica_id: Its name.
            profile: How fast it is.
            kv: Row of ``KV_MODELS``.
            discipline: Of its waiting line.
        """
        self.replica_id = replica_id
        self.profile = profile
        self._build = partial(KV_MODELS[kv], profile, discipline=discipline)
        self._before = EngineTotals(replica_id)
        self.engine = self._build()
        self.is_up = True
        # When the running step ends and the next begins, and what the running one brings about.
        self.boundary_ns: Nanos = NEVER
        self.running_step: StepResult | None = None
        # Handed over since the last boundary: they do not wait, they could not enter yet.
        self.fresh = 0
        self.reported_ns: Nanos = 0

    @property
    def waiting(self) -> int:
        """Requests that wait in the engine."""
        return max(0, self.engine.waiting - self.fresh)

    def wake(self, *, now_ns: Nanos) -> None:
        """Let an idle engine begin a step, where its steps lie on a grid at the next of them."""
        if self.boundary_ns == NEVER:
            grid_ns = self.profile.step_ns if self.profile.is_paced else 1
            self.boundary_ns = div_ceil(now_ns, grid_ns) * grid_ns

    def signals(self, *, now_ns: Nanos) -> Signals:
        """Return what its metrics would say now."""
        engine = self.engine
        return Signals(
            self.replica_id,
            now_ns,
            kv_used_tokens=engine.kv_used_tokens,
            waiting_prompt_tokens=engine.waiting_prompt_tokens,
            waiting=engine.waiting,
            preemptions_total=engine.preemptions_total,
        )

    def die(self) -> None:
        """Lose the engine with all it holds; what comes back is a new one."""
        self._before = self.totals()
        self.engine = self._build()
        self.is_up = False
        self.boundary_ns, self.running_step, self.fresh = NEVER, None, 0

    def totals(self) -> EngineTotals:
        """Return what it has done so far, over all its lives."""
        engine, before = self.engine, self._before
        return EngineTotals(
            self.replica_id,
            worked_tokens=before.worked_tokens + engine.worked_tokens_total,
            recomputed_tokens=before.recomputed_tokens + engine.recomputed_tokens_total,
            preemptions=before.preemptions + engine.preemptions_total,
            entered_prompt_tokens=before.entered_prompt_tokens + engine.entered_prompt_tokens_total,
            spared_tokens=before.spared_tokens + engine.spared_tokens_total,
        )
