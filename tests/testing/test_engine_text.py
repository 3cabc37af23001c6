"""The emulated engine's rules for counting, length and text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.testing.engine_text import (
    answer_words,
    chat_prompt_tokens,
    drawn_output_tokens,
    text_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("น", 1), ("นน", 2)]
)
def test_text_tokens_when_counted_then_bytes_are_divided_by_four_upwards(
    text: str, tokens: int
) -> None:
    """Four UTF-8 bytes are a token, and a rest is one more."""
    assert text_tokens(text) == tokens


def test_chat_prompt_tokens_when_counted_then_each_message_costs_four_more() -> None:
    """A chat's tokens are its texts' tokens and four per message."""
    assert chat_prompt_tokens(["abcd", "", "abcde"]) == (1 + 4) + (0 + 4) + (2 + 4)


@given(st.text())
def test_drawn_output_tokens_when_drawn_again_then_the_same_within_bounds(prompt: str) -> None:
    """The answer's length depends on the prompt alone and keeps its bounds, whatever the text."""
    tokens = drawn_output_tokens(prompt)
    assert 1 <= tokens <= 1_200
    assert drawn_output_tokens(prompt) == tokens


def test_drawn_output_tokens_when_drawn_often_then_the_median_is_as_stated() -> None:
    """The lengths of many prompts have the stated median of 200."""
    lengths = sorted(drawn_output_tokens(f"prompt {number}") for number in range(4_001))
    assert 190 <= lengths[2_000] <= 210


@given(st.integers(1, 200), st.integers(1, 200))
def test_answer_words_when_cut_anywhere_then_the_pieces_join_to_the_whole(
    first: int, second: int
) -> None:
    """Words sent one by one read the same as the whole answer, and stand in JSON as they are."""
    whole = answer_words(first=0, count=first + second)
    assert answer_words(first=0, count=first) + answer_words(first=first, count=second) == whole
    assert json.loads(b'"' + whole + b'"') == whole.decode("ascii")
    assert len(whole.split()) == first + second
