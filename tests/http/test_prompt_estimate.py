"""The estimate of a prompt starts at four bytes a token and follows what is measured."""

from hypothesis import given
from hypothesis import strategies as st

from tokenweir.http.prompt_estimate import FLOOR_TOKENS, PromptSize, TokenRatios


def test_estimate_when_nothing_is_known_then_four_bytes_a_token() -> None:
    """The usual ratio of English text, and four tokens around each message."""
    assert TokenRatios().prompt_tokens("m", PromptSize(400, messages=2)) == 108


def test_estimate_when_the_prompt_is_empty_then_the_floor_holds() -> None:
    """No request is free."""
    assert TokenRatios().prompt_tokens("m", PromptSize(0, messages=0)) == FLOOR_TOKENS


def test_estimate_when_usage_comes_back_then_it_follows_per_model() -> None:
    """After some answers the estimate of that model is right, and others stay as they were."""
    ratios = TokenRatios()
    size = PromptSize(3_000, messages=1)
    for _ in range(200):
        ratios.learn_prompt("thai", size, prompt_tokens=2_004)
    assert abs(ratios.prompt_tokens("thai", size) - 2_004) <= 20
    assert ratios.prompt_tokens("other", size) == 754


def test_chunks_when_they_hold_many_tokens_then_the_ratio_follows() -> None:
    """An upstream that merges twenty tokens in a chunk is counted right before its usage comes."""
    ratios = TokenRatios()
    for _ in range(200):
        ratios.learn_chunks("m", 10, output_tokens=200)
    assert 19 < ratios.tokens_per_chunk("m") <= 20


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)), max_size=30
    )
)
def test_estimate_when_usage_is_absurd_then_it_stays_within_its_clamps(
    seen: list[tuple[int, int, int]],
) -> None:
    """No usage, however wrong, makes a prompt free or endless."""
    ratios = TokenRatios()
    for text_bytes, prompt_tokens, chunks in seen:
        ratios.learn_prompt("m", PromptSize(text_bytes, messages=1), prompt_tokens=prompt_tokens)
        ratios.learn_chunks("m", chunks, output_tokens=prompt_tokens)
    assert 10_000 // 16 <= ratios.prompt_tokens("m", PromptSize(10_000)) <= 20_001
    assert 0 < ratios.tokens_per_chunk("m") <= 64


def test_models_when_many_are_named_then_the_table_keeps_its_bound() -> None:
    """A client that invents names pushes out other invented names, not memory limits."""
    ratios = TokenRatios(models_max=3)
    for index in range(50):
        ratios.prompt_tokens("real", PromptSize(100))
        ratios.prompt_tokens(f"invented-{index}", PromptSize(100))
    assert len(ratios) == 3
