"""What the load generator reads from a stream."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.study.load.answer import AnswerReader

RECORDED = Path(__file__).parents[1] / "fixtures" / "wire"


def read(body: bytes, *, cuts: list[int] | None = None) -> AnswerReader:
    """Read a body cut at these places; each piece arrives one nanosecond after the other."""
    reader = AnswerReader()
    places = [0, *sorted(cuts or []), len(body)]
    for now_ns, (start, end) in enumerate(pairwise(places)):
        reader.feed(body[start:end], now_ns=now_ns)
    return reader


@pytest.mark.parametrize(
    ("recording", "output_tokens"),
    [
        ("chat_stream_usage.sse", 12),
        ("chat_stream_no_usage.sse", 6),
        ("completions_stream_usage.sse", 8),
        ("openai_chat_stream_usage.sse", None),
    ],
)
def test_reader_when_fed_a_recording_then_it_counts_the_tokens(
    recording: str, output_tokens: int | None
) -> None:
    """Recorded streams are read to their end, by usage where there is one, else by chunks."""
    reader = read((RECORDED / recording).read_bytes())
    assert reader.error is None
    assert reader.is_done
    assert reader.first_token_ns == 0
    if output_tokens is not None:
        assert reader.output_tokens == output_tokens


@given(st.lists(st.integers(0, 3_000), max_size=20))
def test_reader_when_pieces_are_cut_anywhere_then_it_counts_the_same(cuts: list[int]) -> None:
    """Where the network cuts the stream does not matter."""
    body = (RECORDED / "chat_stream_usage.sse").read_bytes()
    reader = read(body, cuts=[min(cut, len(body)) for cut in cuts])
    assert (reader.is_done, reader.output_tokens, reader.error) == (True, 12, None)


def test_reader_when_only_comments_and_the_role_came_then_there_is_no_token() -> None:
    """Keep-alive comments and the opening role chunk do not end the wait for the first token."""
    reader = AnswerReader()
    reader.feed(b": queued\n\n", now_ns=1)
    reader.feed(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n', now_ns=2)
    assert reader.first_token_ns is None
    reader.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', now_ns=3)
    reader.feed(b'data: {"choices":[{"delta":{"content":"b"}}]}\n\n', now_ns=5)
    assert (reader.first_token_ns, reader.last_token_ns, reader.output_tokens) == (3, 5, 2)


@pytest.mark.parametrize(
    "body",
    [
        b'event: error\ndata: {"error":{"message":"x"}}\n\n',
        b'data: {"error":{"message":"x"}}\n\n',
        b'data: {"choices":[],"usage":{"completion_tokens":null}}\n\n',
    ],
)
def test_reader_when_an_error_comes_in_mid_stream_then_it_is_noted(body: bytes) -> None:
    """An error inside a stream is no token and no end."""
    reader = read(body)
    assert reader.error is not None
    assert not reader.is_done
