"""Prompts of a wanted length from public text."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.core.errors import ConfigError
from tokenweir.study.prompts import PROMPT_FILES, PROMPT_TOKENS_MIN, PromptLibrary
from tokenweir.testing.engine_text import chat_prompt_tokens

LIBRARY = PromptLibrary()


@given(st.integers(PROMPT_TOKENS_MIN, 3_000), st.integers(0, 1_000_000))
def test_prompt_when_made_then_it_counts_exactly_as_asked(prompt_tokens: int, seed: int) -> None:
    """Whatever the language, the engine's rule counts the wanted number of tokens."""
    text = LIBRARY.prompt(prompt_tokens, rng=random.Random(seed))
    assert chat_prompt_tokens([text]) == prompt_tokens


def test_prompt_when_longer_than_its_file_then_the_text_goes_round() -> None:
    """A prompt may be longer than any file."""
    text = LIBRARY.prompt(100_000, rng=random.Random(1))
    assert chat_prompt_tokens([text]) == 100_000


def test_prompt_when_too_short_for_any_text_then_it_is_refused() -> None:
    """Below one byte of text there is no such message."""
    with pytest.raises(ValueError, match="5 or more are"):
        LIBRARY.prompt(PROMPT_TOKENS_MIN - 1, rng=random.Random(1))


def test_library_when_drawn_from_then_many_languages_come() -> None:
    """Prompts are in several scripts, since bytes per character differ between them."""
    rng = random.Random(1)
    texts = [LIBRARY.prompt(60, rng=rng) for _ in range(300)]
    scripts = ("\u0e00", "\u0f00"), ("\u0400", "\u0500"), ("\u4e00", "\u9fff"), ("a", "z")
    for low, high in scripts:
        assert any(low <= char <= high for text in texts for char in text)


def test_library_when_a_file_is_missing_then_the_error_names_it(tmp_path: Path) -> None:
    """A missing text is a configuration error with the file's name."""
    first = next(iter(PROMPT_FILES))
    with pytest.raises(ConfigError, match=first):
        PromptLibrary(tmp_path)
