"""Prefixes and the index of what replicas have read: leading blocks, bounds, precision."""

from __future__ import annotations

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.core.prefix import NO_PREFIX, Prefix
from tokenweir.core.prefix_index import PrefixIndex
from tokenweir.core.units import ReplicaId

A, B = ReplicaId("a"), ReplicaId("b")


def _trusted(tokens_max: int = 1_000) -> PrefixIndex:
    """Return an index whose precision has become 1 within a thousandth."""
    index = PrefixIndex(tokens_max=tokens_max)
    for _ in range(100):
        index.learn(1_000_000, spared_tokens=1_000_000)
    assert index.precision > 0.9999
    return index


@pytest.mark.parametrize(
    ("prompt_tokens", "whole", "spared"),
    [(9, 0, 0), (10, 1, 0), (11, 1, 1), (31, 3, 3), (99, 3, 3)],
)
def test_prefix_when_prompt_fills_blocks_then_one_token_is_always_read(
    prompt_tokens: int, whole: int, spared: int
) -> None:
    """Only whole blocks have ids that count, and the last token is never spared."""
    prefix = Prefix(10, (7, 8, 9))
    assert len(prefix.whole(prompt_tokens)) == whole
    assert prefix.spared_max(prompt_tokens) == spared


def test_prefix_when_nothing_is_known_then_nothing_is_spared() -> None:
    """A trace without ids has prompts that share nothing."""
    assert NO_PREFIX.whole(100) == ()
    assert NO_PREFIX.spared_max(100) == 0
    index = _trusted()
    index.note_sent(A, NO_PREFIX, prompt_tokens=100)
    assert index.discount_tokens([A], NO_PREFIX, prompt_tokens=100) == 0


def test_found_when_prompts_begin_alike_then_the_leading_blocks_count() -> None:
    """A block after one that differs does not count, nor does another replica's."""
    index = PrefixIndex(tokens_max=1_000)
    index.note_sent(A, Prefix(10, (1, 2, 3)), prompt_tokens=35)
    assert index.found_tokens(A, Prefix(10, (1, 2, 3)), prompt_tokens=35) == 30
    assert index.found_tokens(A, Prefix(10, (1, 2, 3)), prompt_tokens=30) == 20
    assert index.found_tokens(A, Prefix(10, (1, 5, 3)), prompt_tokens=35) == 10
    assert index.found_tokens(A, Prefix(10, (5, 2, 3)), prompt_tokens=35) == 0
    assert index.found_tokens(B, Prefix(10, (1, 2, 3)), prompt_tokens=35) == 0


def test_discount_when_replicas_differ_then_it_is_their_mean_times_precision() -> None:
    """Before a place is chosen, a prompt that one of two replicas knows counts half."""
    index = PrefixIndex(tokens_max=1_000)
    prefix = Prefix(10, (1, 2))
    index.note_sent(A, prefix, prompt_tokens=25)
    assert index.discount_tokens([A], prefix, prompt_tokens=25) == 10
    assert index.discount_tokens([A, B], prefix, prompt_tokens=25) == 5
    assert index.discount_tokens([], prefix, prompt_tokens=25) == 0


def test_note_when_bound_is_reached_then_the_oldest_goes_from_its_end() -> None:
    """Five blocks are remembered: of the older prompt what leads, of the newer all."""
    index = PrefixIndex(tokens_max=59)
    old, new = Prefix(10, (1, 2, 3)), Prefix(10, (4, 5, 6))
    index.note_sent(A, old, prompt_tokens=35)
    index.note_sent(A, new, prompt_tokens=35)
    assert index.found_tokens(A, new, prompt_tokens=35) == 30
    assert index.found_tokens(A, old, prompt_tokens=35) == 20
    # Asked for again it is the newer one.
    index.note_sent(A, old, prompt_tokens=35)
    assert index.found_tokens(A, old, prompt_tokens=35) == 30
    assert index.found_tokens(A, new, prompt_tokens=35) == 20


def test_precision_when_engines_have_less_then_discounts_shrink() -> None:
    """It starts at a half, follows what engines had, and more than was found is no gain."""
    index = PrefixIndex(tokens_max=1_000)
    assert index.precision == pytest.approx(0.5)
    for _ in range(1_000):
        index.learn(100, spared_tokens=25)
    assert index.precision == pytest.approx(0.25, abs=0.04)
    for _ in range(5_000):
        index.learn(100, spared_tokens=500)
    assert 0.99 < index.precision <= 1.0
    before = index.precision
    index.learn(0, spared_tokens=500)
    assert index.precision == before


def test_forget_when_a_replica_has_gone_then_nothing_of_it_is_found() -> None:
    """An engine that starts again has an empty cache."""
    index = _trusted()
    prefix = Prefix(10, (1, 2))
    index.note_sent(A, prefix, prompt_tokens=25)
    index.forget(A)
    assert index.found_tokens(A, prefix, prompt_tokens=25) == 0
    index.forget(B)


def test_index_when_bound_is_below_one_then_it_is_refused() -> None:
    """A table has a bound, and it is not nothing."""
    with pytest.raises(ConfigError, match="tokens_max 0"):
        PrefixIndex(tokens_max=0)
