"""The table of engine profiles."""

import dataclasses

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import PROFILES, profile


@pytest.mark.parametrize("name", PROFILES)
def test_profile_when_looked_up_then_names_itself_and_its_source(name: str) -> None:
    """Every row says where its numbers come from."""
    row = profile(name)
    assert row.name == name
    assert row.source


@pytest.mark.parametrize("name", PROFILES)
def test_profile_when_asked_for_capacity_then_is_rate_over_mean_size(name: str) -> None:
    """Requests a second times their mean size is what the engine can work on in a second."""
    row = profile(name)
    assert row.capacity_rps(row.tokens_per_s) == pytest.approx(1.0)


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
    ],
    ids=str,
)
def test_profile_when_out_of_range_then_says_what_is_allowed(change: dict[str, int]) -> None:
    """A wrong number names the field, the value and what is allowed."""
    ((name, value),) = change.items()
    with pytest.raises(ConfigError, match=f"{name} {value} is not allowed, allowed: "):
        dataclasses.replace(profile("article"), **change)  # type: ignore[arg-type]  # by name


def test_profile_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ConfigError, match="unknown profile 'abacus', allowed: article"):
        profile("abacus")
