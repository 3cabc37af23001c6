"""The account of a stream is the same however the network cuts it, and hides what it should."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.core.request import Outcome, Usage
from tokenweir.http.paths.chunks import NAMES, ChunkAccount
from tokenweir.http.stream_account import StreamAccount

WIRE = Path(__file__).parents[1] / "fixtures" / "wire"

# Recording, chunks with output, usage told, outcome.
STREAMS = [
    ("chat_stream_usage.sse", 12, Usage(35, 12), Outcome.LENGTH),
    ("chat_stream_no_usage.sse", 6, None, Outcome.LENGTH),
    ("completions_stream_usage.sse", 8, Usage(7, 8), Outcome.LENGTH),
    ("openai_chat_stream_usage.sse", 5, Usage(12, 5, 0), Outcome.FINISHED),
    ("openai_chat_stream_no_usage.sse", None, None, Outcome.FINISHED),
]


def body_of(name: str) -> bytes:
    """A recorded body."""
    return (WIRE / name).read_bytes()


def feed_all(account: StreamAccount, pieces: list[bytes]) -> bytes:
    """Feed every piece and return what was passed on."""
    return b"".join([account.feed(piece) for piece in pieces] + [account.flush()])


def cut(body: bytes, places: list[int]) -> list[bytes]:
    """A body in pieces."""
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in pairwise(edges) if a < b]


def events_of(body: bytes) -> list[str]:
    """The data of every event."""
    return [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize(("name", "chunks", "usage", "outcome"), STREAMS)
def test_account_when_fed_whole_then_tells_chunks_usage_and_outcome(
    name: str, chunks: int | None, usage: Usage | None, outcome: Outcome
) -> None:
    """Real streams of an engine and a provider are read right."""
    body = body_of(name)
    account = ChunkAccount(hides_usage=False)
    assert feed_all(account, [body]) == body
    if chunks is None:
        texts = [json.loads(event) for event in events_of(body)[:-1]]
        chunks = sum(bool(event["choices"][0]["delta"].get("content")) for event in texts)
    assert (account.chunks, account.usage, account.outcome) == (chunks, usage, outcome)
    assert account.is_done
    assert not account.has_failed


@given(index=st.integers(0, len(STREAMS) - 1), places=st.lists(st.integers(0), max_size=40))
def test_account_when_split_anywhere_then_is_the_same(index: int, places: list[int]) -> None:
    """How the network cuts the bytes changes neither the account nor the bytes."""
    name, chunks, usage, outcome = STREAMS[index]
    body = body_of(name)
    account = ChunkAccount(hides_usage=False)
    assert feed_all(account, cut(body, places)) == body
    assert (account.usage, account.outcome, account.is_done) == (usage, outcome, True)
    assert chunks is None or account.chunks == chunks


@given(
    index=st.integers(0, len(STREAMS) - 1),
    places=st.lists(st.integers(0), max_size=40),
    is_crlf=st.booleans(),
)
def test_usage_when_hidden_then_all_other_events_pass_unchanged(
    index: int, places: list[int], is_crlf: bool
) -> None:
    """A client that did not ask gets the stream that the engine would have sent it unasked."""
    name, _, usage, _ = STREAMS[index]
    body = body_of(name)
    expected = [
        event for event in events_of(body) if event == "[DONE]" or json.loads(event)["choices"]
    ]
    if is_crlf:
        body = body.replace(b"\n", b"\r\n")
    account = ChunkAccount(hides_usage=True)
    passed = feed_all(account, cut(body, places))
    assert events_of(passed) == expected
    assert account.usage == usage
    assert b'"choices":[]' not in passed
    # Every event is still followed by one blank line, so that parsers see the same events.
    blank = b"\r\n\r\n" if is_crlf else b"\n\n"
    assert passed.count(blank) >= len(expected)


def test_usage_when_on_a_chunk_with_choices_then_it_passes_even_in_hiding() -> None:
    """Some providers put it on the last chunk of the answer, which the client must get."""
    line = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],'
    line += b'"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    account = ChunkAccount(hides_usage=True)
    assert account.feed(line) == line
    assert account.usage == Usage(3, 1)
    assert account.chunks == 1


def test_usage_when_on_every_chunk_then_the_last_counts() -> None:
    """Continuous usage is taken as it grows."""
    account = ChunkAccount(hides_usage=False)
    for count in (1, 2, 3):
        usage = b'"usage":{"prompt_tokens":9,"completion_tokens":%d}' % count
        account.feed(b'data: {"choices":[{"delta":{"content":"x"}}],' + usage + b"}\n\n")
    assert account.usage == Usage(9, 3)
    assert account.chunks == 3


def test_text_when_it_talks_about_usage_then_is_not_taken_for_usage() -> None:
    """What a model says cannot charge its client: inside a string the quotes are escaped."""
    said = json.dumps({"choices": [{"delta": {"content": '"usage":{"prompt_tokens":1}'}}]})
    said = said.replace(" ", "")
    account = ChunkAccount(hides_usage=True)
    body = f"data: {said}\n\n".encode()
    assert account.feed(body) == body
    assert account.usage is None


@pytest.mark.parametrize(
    "body",
    [
        b'event: error\ndata: {"error":{"message":"boom","code":500}}\n\n',
        b'data: {"id":"x","error":{"message":"boom"},"choices":[]}\n\n',
        b'data: {"choices":[{"delta":{"content":""},"finish_reason":"error"}]}\n\n',
    ],
)
def test_error_when_sent_in_the_stream_then_the_outcome_is_an_error(body: bytes) -> None:
    """A failure in mid-stream is not taken for an end of the model's own."""
    account = ChunkAccount(hides_usage=False)
    account.feed(body + b"data: [DONE]\n\n")
    assert account.outcome is Outcome.ERROR


def test_stream_when_it_stops_without_an_end_then_the_outcome_is_an_error() -> None:
    """Neither a finish reason nor the end marker came."""
    account = ChunkAccount(hides_usage=False)
    account.feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\nda')
    assert account.outcome is Outcome.ERROR
    assert account.is_inside_line


def test_line_when_endless_then_memory_stays_bounded_and_bytes_pass() -> None:
    """A line of megabytes is passed on uncounted, and counting goes on behind it."""
    account = ChunkAccount(hides_usage=True)
    piece = b"x" * 65_536
    passed = account.feed(b"data: ")
    for _ in range(64):
        passed += account.feed(piece)
    end = b'\n\ndata: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    passed += account.feed(end)
    assert passed == b"data: " + piece * 64 + end
    assert account.chunks == 1


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_bytes_when_random_then_nothing_is_lost_and_nothing_breaks(pieces: list[bytes]) -> None:
    """Garbage passes as it came."""
    account = ChunkAccount(hides_usage=False)
    assert feed_all(account, pieces) == b"".join(pieces)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
        ({"prompt_tokens": 4, "completion_tokens": None}, Usage(4, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 2}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": 1.5}, None),
        ({}, None),
        ("x", None),
    ],
)
def test_usage_when_stated_then_taken_only_where_it_counts(
    usage: object, expected: Usage | None
) -> None:
    """An explicit zero is a usage; nonsense is none."""
    assert NAMES.read(usage) == expected
