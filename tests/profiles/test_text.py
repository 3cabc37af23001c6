"""A profile as a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.core.profile import EngineProfile
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.profiles.loading import load_profile
from tokenweir.profiles.text import profile_text

# What a file can hold: TOML knows no half of a surrogate pair.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
COUNT = st.integers(1, 10**9)
PRICE = st.floats(0, 1e12)


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_text_when_of_a_shipped_profile_then_reads_as_the_same(name: str, tmp_path: Path) -> None:
    """Written and read again, nothing has changed."""
    path = tmp_path / "copy.toml"
    path.write_text(profile_text(profile(name)), encoding="utf-8")
    assert profile(str(path)) == profile(name)


@given(
    st.builds(
        EngineProfile,
        name=TEXT,
        source=TEXT,
        step_ns=COUNT,
        step_tokens_max=st.just(10**9),
        chunk_tokens_max=COUNT,
        kv_tokens=COUNT,
        sequences_max=COUNT,
        token_ns=PRICE,
        kv_token_ns=PRICE,
        compute_step_ns=COUNT,
        compute_token_ns=PRICE,
        sequence_ns=PRICE,
        attention_ns=PRICE,
    )
)
def test_text_when_of_any_profile_then_reads_as_the_same(
    tmp_path_factory: pytest.TempPathFactory, made: EngineProfile
) -> None:
    """Quotes, line ends, control characters and every number survive."""
    path = tmp_path_factory.mktemp("profile") / "any.toml"
    path.write_bytes(profile_text(made).encode())
    assert load_profile(path) == made
