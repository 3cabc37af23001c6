"""Which KV blocks are in use, and which hold what may be asked for again?

Model: a pool of N blocks. A block is free, private to one sequence, or part of a run: the blocks of
one prefix block, known by its id and held once however many sequences read it. A run that nobody
holds any more is idle: it stays until its blocks are needed.
Rule: what is taken comes from free blocks first, then from idle runs, least lately held first; of
one sequence's runs the last goes first, so that what is left is a beginning.
Properties: INV-ENGINE-3 (free + private + held runs + idle runs = N, none below 0).
Source: vLLM's automatic prefix caching, for the order of eviction; SGLang's radix tree, for holding
a run once when two sequences have read it at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tokenweir.core.errors import ContractError, InvariantError

__all__ = ["BlockPool"]


class BlockPool:
    """The KV blocks of one engine."""

    __slots__ = ("_held", "_idle", "blocks", "evictions_total", "private_blocks", "run_blocks")

    def __init__(self, blocks: int) -> None:
        """Start with all blocks free.

        Args:
            blocks: Size of the pool, at least 1.
        """
        self.blocks = blocks
        self.private_blocks = 0
        # Of every run, once the first of them has told it.
        self.run_blocks = 0
        self.evictions_total = 0
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used_blocks(self) -> int:
        """Blocks that sequences hold, a shared one counted once."""
        return self.private_blocks + self.run_blocks * len(self._held)

    @property
    def idle_blocks(self) -> int:
        """Blocks that nobody holds and that may be asked for again."""
        return self.run_blocks * len(self._idle)

    @property
    def available_blocks(self) -> int:
        """Blocks that can be taken, idle ones among them."""
        return self.blocks - self.used_blocks

    def check_run(self, run_blocks: int) -> None:
        """Take the size of runs from the first; it is the same for all.

        Raises:
            ContractError: It is not.
        """
        if self.run_blocks not in (0, run_blocks):
            raise ContractError(
                f"a run of {run_blocks} blocks in a pool whose runs have {self.run_blocks}"
            )
        self.run_blocks = run_blocks

    def cached(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return how many leading runs are here, and how many of those are idle."""
        idle = 0
        for number, run in enumerate(ids):
            if run in self._idle:
                idle += 1
            elif run not in self._held:
                return number, idle
        return len(ids), idle

    def hold(self, ids: Sequence[int]) -> None:
        """Let a sequence hold runs that are here."""
        for run in ids:
            if run in self._held:
                self._held[run] += 1
            else:
                del self._idle[run]
                self._held[run] = 1

    def take(self, blocks: int) -> bool:
        """Make blocks private, from idle runs where need be; returns whether there were enough."""
        missing = blocks - (self.available_blocks - self.idle_blocks)
        if missing > self.idle_blocks:
            return False
        while missing > 0:
            self._idle.popitem(last=False)
            self.evictions_total += 1
            missing -= self.run_blocks
        self.private_blocks += blocks
        return True

    def give_back(self, blocks: int) -> None:
        """Make private blocks free."""
        self.private_blocks -= blocks

    def share(self, run: int) -> None:
        """Turn a sequence's private blocks into a run that it holds, or drop them for one here."""
        self.private_blocks -= self.run_blocks
        if run in self._held or run in self._idle:
            self.hold((run,))
        else:
            self._held[run] = 1

    def let_go(self, ids: Sequence[int]) -> None:
        """Let a sequence hold these runs no longer."""
        for run in reversed(ids):
            holders = self._held[run] - 1
            if holders:
                self._held[run] = holders
            else:
                del self._held[run]
                self._idle[run] = None

    def check(self, *, private_blocks: int, holders: int) -> None:
        """Compare with what the sequences add up to.

        Args:
            private_blocks: Of all sequences.
            holders: Runs held, each as often as it is.

        Raises:
            InvariantError: INV-ENGINE-3 does not hold.
        """
        counted = (self.private_blocks, sum(self._held.values()))
        if counted != (private_blocks, holders):
            raise InvariantError(
                f"block pool says (private, holders of runs) {counted}, "
                f"its sequences add up to {(private_blocks, holders)}"
            )
        free = self.blocks - self.used_blocks - self.idle_blocks
        if min(free, self.private_blocks) < 0 or self._held.keys() & self._idle.keys():
            raise InvariantError(
                f"block pool of {self.blocks} has {free} free, {self.private_blocks} private"
            )
