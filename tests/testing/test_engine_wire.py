"""What the emulated engine understands, and that it answers in the form vLLM does."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenweir.testing.engine_wire import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    AnswerWriter,
    EngineCall,
    WireError,
    parse_call,
)

RECORDED = Path(__file__).parents[1] / "fixtures" / "wire"
CONTEXT = 1_000


def call_of(path: str = CHAT_PATH, **fields: Any) -> EngineCall:
    """Parse a body with a prompt of 5 tokens (chat) or 1 (plain) and these fields."""
    prompt: dict[str, Any] = (
        {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT_PATH else {"prompt": "hi"}
    )
    return parse_call(path, json.dumps({**prompt, **fields}).encode(), context_tokens=CONTEXT)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the JSON payloads of a stream, without the closing [DONE]."""
    *events, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def stream_of(call: EngineCall) -> bytes:
    """Render a whole stream."""
    writer = AnswerWriter(call, "id-1")
    tokens = b"".join(writer.token(index) for index in range(call.output_tokens))
    return writer.opening() + tokens + writer.closing()


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"emulated_output_tokens": 7}, 7, "stop"),
        ({"emulated_output_tokens": 7, "max_tokens": 7}, 7, "length"),
        ({"emulated_output_tokens": 9, "max_tokens": 7}, 7, "length"),
        ({"emulated_output_tokens": 9, "max_completion_tokens": 7}, 7, "length"),
        ({"ignore_eos": True, "max_tokens": 30}, 30, "length"),
        ({"ignore_eos": True}, CONTEXT - 5, "length"),
        ({"max_tokens": 1}, 1, "length"),
    ],
)
def test_parse_call_when_the_length_is_stated_then_it_is_kept_under_the_maximum(
    fields: dict[str, Any], tokens: int, reason: str
) -> None:
    """A stated length holds, the declared maximum caps it, and reaching it ends with length."""
    call = call_of(**fields)
    assert (call.output_tokens, call.finish_reason) == (tokens, reason)


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("abcde", 2), ("", 1), ([3, 1, 4, 1, 5], 5), ([[3, 1]], 2), (["ab"], 1)]
)
def test_parse_call_when_the_prompt_is_plain_then_text_or_ids_are_counted(
    prompt: object, tokens: int
) -> None:
    """A plain prompt is text, token ids, or a list of one of them."""
    body = json.dumps({"prompt": prompt}).encode()
    assert parse_call(COMPLETIONS_PATH, body, context_tokens=CONTEXT).prompt_tokens == tokens


def test_parse_call_when_content_comes_in_parts_then_their_text_is_counted() -> None:
    """Content may be a list of parts, of which the text parts count."""
    parts = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {}}]
    call = call_of(messages=[{"role": "user", "content": parts}])
    assert call.prompt_tokens == 5


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"messages": []}', "messages"),
        (b'{"messages": [{"content": "no role"}]}', "messages"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "messages"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": -1}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": true}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 5000}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 999}', "input_tokens"),
        (b'{"messages": [{"role": "user", "content": "a"}], "n": 2}', "n"),
    ],
)
def test_parse_call_when_the_body_is_bad_then_a_400_names_the_parameter(
    body: bytes, param: str | None
) -> None:
    """What cannot be understood or could never run is refused in vLLM's error form."""
    with pytest.raises(WireError) as caught:
        parse_call(CHAT_PATH, body, context_tokens=CONTEXT)
    error = json.loads(caught.value.body())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (400, param)


def test_parse_call_when_the_prompt_fills_the_context_then_it_is_refused() -> None:
    """A prompt that leaves no room for output could never run."""
    with pytest.raises(WireError, match="maximum context length is 1000"):
        call_of(messages=[{"role": "user", "content": "a" * 4 * CONTEXT}])


@pytest.mark.parametrize(
    ("path", "recording"),
    [
        (CHAT_PATH, "chat_stream_usage.sse"),
        (COMPLETIONS_PATH, "completions_stream_usage.sse"),
    ],
)
def test_stream_when_compared_with_the_recording_then_chunks_have_the_same_form(
    path: str, recording: str
) -> None:
    """Chunk by chunk, our keys are among those that vLLM sent, and all a client reads are there."""
    call = call_of(
        path,
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=3,
        ignore_eos=True,
    )
    ours = events_of(stream_of(call))
    theirs = events_of((RECORDED / recording).read_bytes())
    for mine, real in ((ours[0], theirs[0]), (ours[-2], theirs[-2]), (ours[-1], theirs[-1])):
        assert set(mine) <= set(real)
        assert mine["object"] == real["object"]
        if real["choices"]:
            assert set(mine["choices"][0]) <= set(real["choices"][0])
            assert mine["choices"][0]["finish_reason"] == real["choices"][0]["finish_reason"]
        else:
            assert set(mine["usage"]) == set(real["usage"])


def test_stream_when_read_then_words_and_usage_agree_with_the_call() -> None:
    """One chunk per token, a role first, the reason on the last one, then usage."""
    call = call_of(
        stream=True, stream_options={"include_usage": True}, emulated_output_tokens=4, max_tokens=9
    )
    role, *tokens, usage = events_of(stream_of(call))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None, None, None, "stop"]
    text = "".join(t["choices"][0]["delta"]["content"] for t in tokens)
    assert len(text.split()) == 4
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}


def test_stream_when_usage_is_not_asked_for_then_none_is_sent() -> None:
    """Without include_usage the stream ends with its last token."""
    events = events_of(stream_of(call_of(stream=True, emulated_output_tokens=2)))
    assert all("usage" not in event for event in events)


def test_whole_when_not_streamed_then_it_says_what_the_stream_would() -> None:
    """The plain body has the text, the reason and the usage of the stream."""
    call = call_of(emulated_output_tokens=3)
    body = json.loads(AnswerWriter(call, "id-1").whole())
    real = json.loads((RECORDED / "chat_nonstream.json").read_text(encoding="utf-8"))
    assert set(body) <= set(real)
    assert len(body["choices"][0]["message"]["content"].split()) == 3
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 3
