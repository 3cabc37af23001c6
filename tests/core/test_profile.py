"""The step-time model, on the profiles that are there."""

import dataclasses

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import PROFILE_NAMES, profile


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_profile_when_asked_for_capacity_then_is_rate_over_mean_size(name: str) -> None:
    """A request of one token, which has no context, costs its share of a full step."""
    row = profile(name)
    extra_ns = row.sequence_ns + row.attention_ns / 2
    per_token_ns = 1e9 / row.tokens_per_s
    assert row.capacity_rps([(1, 1)] * 7) == pytest.approx(1e9 / (per_token_ns + extra_ns))


@pytest.mark.parametrize(
    ("name", "expected_rps"), [("8b-a100", 10.9), ("8b-h100", 26.4), ("70b-4xh100", 12.3)]
)
def test_profile_when_it_is_a_real_engine_then_capacity_is_of_the_published_order(
    name: str, expected_rps: float
) -> None:
    """Requests of 663 and 239 tokens, against a steady-state estimate from the same kernels."""
    assert profile(name).capacity_rps([(663, 239)]) == pytest.approx(expected_rps, rel=0.2)


def test_step_when_few_tokens_then_reading_weights_bounds_it_and_then_computing() -> None:
    """The two arms of the 8B model on an A100 cross between 64 and 256 tokens."""
    row = profile("8b-a100")
    assert row.duration_ns(tokens=1) == 9_270_000 + 43_700
    assert row.duration_ns(tokens=512) == 6_430_000 + 512 * 66_800
    assert row.duration_ns(tokens=64) > 6_430_000 + 64 * 66_800
    assert row.duration_ns(tokens=256) > 9_270_000 + 256 * 43_700


def test_step_when_context_requests_and_attention_grow_then_each_adds_its_price() -> None:
    """The remaining terms are linear."""
    row = profile("8b-a100")
    bare = row.duration_ns(tokens=1)
    assert row.duration_ns(tokens=1, kv_tokens=1_000) == bare + 125_000
    assert row.duration_ns(tokens=1, sequences=10) == bare + 44_000
    assert row.duration_ns(tokens=1, attention=1_000) == bare + 3_400


def test_article_when_asked_for_a_step_then_it_is_always_10_ms() -> None:
    """Its pace does not depend on anything."""
    row = profile("article")
    assert row.is_paced
    assert row.duration_ns(tokens=400, kv_tokens=90_000, sequences=200) == 10_000_000
    assert not profile("8b-a100").is_paced


def test_article_when_looked_up_then_is_the_article_s_engine() -> None:
    """400 tokens in 10 ms are 40,000 a second."""
    row = profile("article")
    assert (row.tokens_per_s, row.kv_tokens) == (40_000.0, 90_000)


@pytest.mark.parametrize(
    "change",
    [
        {"step_ns": 0},
        {"step_tokens_max": 0},
        {"chunk_tokens_max": 0},
        {"kv_tokens": 0},
        {"sequences_max": 0},
        {"sequences_max": 401},
        {"token_ns": -1},
        {"compute_step_ns": -1},
        {"attention_ns": -1},
    ],
    ids=str,
)
def test_profile_when_out_of_range_then_says_what_is_allowed(change: dict[str, int]) -> None:
    """A wrong number names the field, the value and what is allowed."""
    ((name, value),) = change.items()
    with pytest.raises(ConfigError, match=f"{name} {value} is not allowed, allowed: "):
        dataclasses.replace(profile("article"), **change)  # type: ignore[arg-type]  # by name


def test_first_token_when_the_engine_is_idle_then_takes_the_prompt_s_chunks() -> None:
    """Full chunks, the rest, and the attention of the whole prompt."""
    row = profile("8b-a100")
    step_ns = row.duration_ns(tokens=512, sequences=1)
    assert row.unloaded_first_token_ns(512) == step_ns + int(512 * 512 / 2 * 3.4)
    rest_ns = row.duration_ns(tokens=1, sequences=1)
    assert row.unloaded_first_token_ns(513) == step_ns + rest_ns + int(513 * 513 / 2 * 3.4)
    assert profile("article").unloaded_first_token_ns(1) == 10_000_000
