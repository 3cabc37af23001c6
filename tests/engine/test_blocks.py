"""The block pool: what is held once, what stays, and what goes first."""

from __future__ import annotations

import pytest

from tokenweir.core.errors import ContractError, InvariantError
from tokenweir.engine.blocks import BlockPool


def _pool(blocks: int = 12) -> BlockPool:
    pool = BlockPool(blocks)
    pool.check_run(2)
    return pool


def _read(pool: BlockPool, *runs: int) -> None:
    """Let a sequence read runs and share them."""
    for run in runs:
        assert pool.take(2)
        pool.share(run)


def test_share_when_two_have_read_the_same_then_it_is_held_once() -> None:
    """The second reader's own blocks are free again; the run goes idle after both have left."""
    pool = _pool()
    _read(pool, 7)
    _read(pool, 7)
    assert (pool.used_blocks, pool.available_blocks) == (2, 10)
    pool.let_go((7,))
    assert (pool.used_blocks, pool.idle_blocks) == (2, 0)
    pool.let_go((7,))
    assert (pool.used_blocks, pool.idle_blocks, pool.available_blocks) == (0, 2, 12)


def test_take_when_only_idle_runs_are_left_then_the_least_lately_held_goes_from_its_end() -> None:
    """Of runs 1, 2, 3 let go together 3 goes first, and an older sequence's before them."""
    pool = _pool()
    _read(pool, 9)
    _read(pool, 1, 2, 3)
    pool.let_go((9,))
    pool.let_go((1, 2, 3))
    assert pool.take(4)
    assert pool.evictions_total == 0
    assert pool.take(1)
    assert pool.cached((9,)) == (0, 0)
    assert pool.cached((1, 2, 3)) == (3, 3)
    # One block of the evicted run is left over.
    assert pool.take(2)
    assert pool.cached((1, 2, 3)) == (2, 2)
    assert pool.evictions_total == 2


def test_take_when_runs_are_held_then_they_are_never_taken() -> None:
    """A pool whose blocks are all held refuses and changes nothing."""
    pool = _pool(4)
    _read(pool, 1, 2)
    assert not pool.take(1)
    assert (pool.used_blocks, pool.evictions_total) == (4, 0)
    pool.let_go((1, 2))
    pool.hold((1,))
    assert not pool.take(3)
    assert pool.take(2)
    assert pool.cached((1, 2)) == (1, 0)


def test_cached_when_a_run_in_the_middle_is_gone_then_only_what_leads_counts() -> None:
    """A run after a gap cannot be used, since it stands for all before it."""
    pool = _pool()
    _read(pool, 1, 2, 3)
    assert pool.cached((1, 5, 3)) == (1, 0)
    pool.let_go((1, 2, 3))
    pool.hold((1,))
    assert pool.cached((1, 2, 3)) == (3, 2)


def test_check_run_when_sizes_differ_then_it_is_refused() -> None:
    """All runs of a pool have one size."""
    with pytest.raises(ContractError, match="run of 3"):
        _pool().check_run(3)


def test_check_when_sums_are_wrong_then_it_is_an_invariant_error() -> None:
    """Counts that do not add up, and more blocks than there are, are told."""
    pool = _pool(4)
    _read(pool, 1)
    pool.check(private_blocks=0, holders=1)
    with pytest.raises(InvariantError, match="add up"):
        pool.check(private_blocks=1, holders=1)
    with pytest.raises(InvariantError, match="add up"):
        pool.check(private_blocks=0, holders=2)
    pool.private_blocks = 3
    with pytest.raises(InvariantError, match="-1 free"):
        pool.check(private_blocks=3, holders=1)
