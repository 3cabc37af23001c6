"""What recorded answers of engines and providers cost, in every shape that usage comes in."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.wire import cut, feed_all, recorded
from tokenweir.core.request import Outcome, Usage
from tokenweir.http.paths import PATHS
from tokenweir.http.paths.chat import CHAT
from tokenweir.http.paths.embeddings import EMBEDDINGS
from tokenweir.http.paths.form import PathForm
from tokenweir.http.paths.messages import MESSAGES
from tokenweir.http.paths.responses import RESPONSES
from tokenweir.http.paths.usage import read_answer
from tokenweir.settings.model import AdmittedPath

FINISHED, LENGTH, ERROR = Outcome.FINISHED, Outcome.LENGTH, Outcome.ERROR

# Form, recording, usage told, outcome.
STREAMS = [
    (MESSAGES, "messages_stream.sse", Usage(17, 8), LENGTH),
    (MESSAGES, "anthropic_stream_text.sse", Usage(17, 171), FINISHED),
    (MESSAGES, "anthropic_stream_tool_use.sse", Usage(506, 153, 0), FINISHED),
    (MESSAGES, "anthropic_stream_thinking.sse", Usage(52, 216, 0), FINISHED),
    (MESSAGES, "anthropic_stream_prompt_cache_write.sse", Usage(1_169, 201, 0), FINISHED),
    (MESSAGES, "anthropic_stream_prompt_cache_read.sse", Usage(1_169, 221, 1_165), FINISHED),
    (RESPONSES, "openai_responses_stream.sse", Usage(22, 6, 0), FINISHED),
    (CHAT, "chat_stream_continuous_usage.sse", Usage(35, 8), LENGTH),
    (CHAT, "openai_chat_stream_n2_choices.sse", Usage(26, 104, 0), FINISHED),
    (CHAT, "openai_chat_stream_parallel_tools.sse", Usage(75, 51, 0), FINISHED),
    (CHAT, "azure_chat_stream_content_filter.sse", None, FINISHED),
    (CHAT, "novita_llama_stream_usage.sse", Usage(40, 2), FINISHED),
    (CHAT, "deepseek_stream_reasoning_content.sse", Usage(6, 212, 0), FINISHED),
    (CHAT, "openrouter_stream_reasoning.sse", Usage(9, 104, 0), FINISHED),
    (CHAT, "openrouter_stream_comments_midstream_error.sse", Usage(43, 10, 0), ERROR),
    (CHAT, "groq_stream_midstream_error_event.sse", None, ERROR),
]
_SAID = ("content", "reasoning", "reasoning_content", "tool_calls", "refusal")


def has_output(event: dict[str, Any]) -> bool:
    """Whether an event brings output, read from its whole JSON."""
    if "choices" not in event:
        return str(event.get("type")).endswith(("_block_delta", ".delta"))
    # A closing chunk without a role is the model's end token, which engines count.
    return any(
        any(choice["delta"].get(name) for name in _SAID)
        or (choice["finish_reason"] and choice["delta"] and "role" not in choice["delta"])
        for choice in event["choices"]
    )


def outputs_of(body: bytes) -> int:
    """How many events of a stream bring output."""
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
    return sum(has_output(json.loads(line)) for line in lines)


@pytest.mark.case("CASE-C2")
@pytest.mark.parametrize(("form", "name", "usage", "outcome"), STREAMS)
def test_stream_when_recorded_then_tells_chunks_usage_and_outcome(
    form: PathForm, name: str, usage: Usage | None, outcome: Outcome
) -> None:
    """Usage alone, on the last chunk, split over two events, cached, absent: all are read right."""
    body = recorded(name)
    account = form.account()
    assert feed_all(account, [body]) == body
    assert (account.usage, account.outcome) == (usage, outcome)
    assert account.chunks == outputs_of(body) > 0


@given(index=st.integers(0, len(STREAMS) - 1), places=st.lists(st.integers(0), max_size=40))
def test_stream_when_split_anywhere_then_is_the_same(index: int, places: list[int]) -> None:
    """How the network cuts the bytes changes neither the account nor the bytes."""
    form, name, usage, outcome = STREAMS[index]
    body = recorded(name)
    account = form.account()
    assert feed_all(account, cut(body, places)) == body
    assert (account.usage, account.outcome) == (usage, outcome)


@pytest.mark.parametrize(("form", "name", "usage", "outcome"), STREAMS)
def test_stream_when_cut_before_its_usage_then_is_an_error_and_its_prompt_known(
    form: PathForm, name: str, usage: Usage | None, outcome: Outcome
) -> None:
    """What was told by then is kept; an output that is not counted yet is not taken for a usage."""
    body = recorded(name)
    first = body.index(b"data: {")
    # The first third of a stream has no end in it.
    account = form.account()
    account.feed(body[: first + (len(body) - first) // 3])
    assert account.outcome is Outcome.ERROR
    if form is MESSAGES:
        assert usage is not None
        assert account.usage is None
        assert account.prompt_usage is not None
        assert account.prompt_usage.prompt_tokens == usage.prompt_tokens
        assert account.prompt_usage.cached_tokens == usage.cached_tokens


def test_chunks_when_an_engine_sends_many_tokens_in_one_then_are_counted_once_each() -> None:
    """Chunks are not tokens: two recordings of one run differ in nothing but how it was cut."""
    counts = []
    for name in ("dynamo_stream_interval_1.jsonl", "dynamo_stream_interval_20.jsonl"):
        lines = recorded(name).splitlines()
        account = CHAT.account()
        feed_all(account, [b"data: " + line + b"\n\n" for line in lines])
        counts.append(account.chunks)
        said = [
            choice["delta"]["content"] for line in lines for choice in json.loads(line)["choices"]
        ]
        assert account.chunks == sum(map(bool, said))
    assert counts[1] < counts[0]


def test_answers_when_one_of_several_was_cut_then_so_was_their_sum() -> None:
    """The order in which answers to one prompt end does not decide."""
    for reasons in (("length", "stop"), ("stop", "length")):
        account = CHAT.account()
        for reason in reasons:
            choice = {"index": 0, "delta": {}, "finish_reason": reason}
            account.feed(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        assert account.outcome is Outcome.LENGTH


@pytest.mark.parametrize("empty", ['"choices":[]', '"choices": []'])
def test_chunk_when_it_has_no_choices_then_is_no_output(empty: str) -> None:
    """What a filter or a gateway sends ahead of the answer is not its first token."""
    account = CHAT.account()
    account.feed(b'data: {%s,"x":1}\n\n' % empty.encode())
    assert account.chunks == 0


# --- whole answers --------------------------------------------------------------------------------

EMBEDDED = b"""{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-05]}],
"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}"""
RESPONSE = {
    "id": "resp_1",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "tools": [{"parameters": {"usage": {"input_tokens": 1, "output_tokens": 1}}}],
    "usage": {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 16},
        "output_tokens": 4,
    },
    "metadata": {},
}


@pytest.mark.parametrize(
    ("form", "body", "usage", "outcome"),
    [
        (MESSAGES, recorded("messages_nonstream.json"), Usage(17, 8), LENGTH),
        (CHAT, recorded("chat_nonstream.json"), Usage(35, 8), LENGTH),
        (CHAT, recorded("openai_chat_prompt_cache_nonstream.json"), Usage(4020, 4, 4012), FINISHED),
        (CHAT, recorded("openai_chat_tool_call_nonstream.json"), Usage(75, 51, 0), FINISHED),
        (EMBEDDINGS, EMBEDDED, Usage(8, 0), FINISHED),
        (RESPONSES, json.dumps(RESPONSE).encode(), Usage(30, 4, 16), LENGTH),
        (RESPONSES, b'{"status":"completed","usage":null}', None, FINISHED),
        (MESSAGES, b'{"stop_reason":"end_turn"}', None, FINISHED),
        (CHAT, b'{"choices":[],"usage":{"prompt_tokens":', None, FINISHED),
    ],
)
def test_answer_when_whole_then_tells_usage_and_outcome(
    form: PathForm, body: bytes, usage: Usage | None, outcome: Outcome
) -> None:
    """The answer's own usage counts, not one that it echoes from the request."""
    assert read_answer(body, names=form.usage, cut=form.cut) == (usage, outcome)


@pytest.mark.case("CASE-C4")
@pytest.mark.parametrize("form", [form for form in PATHS.values() if form.output_members])
def test_usage_when_explicitly_zero_then_is_zero_and_not_missing(form: PathForm) -> None:
    """A provider that charges nothing is believed."""
    zero = {form.usage.prompt: 0, form.usage.output: 0}
    body = json.dumps({"usage": zero}).encode()
    assert read_answer(body, names=form.usage, cut=form.cut)[0] == Usage(0, 0)
    assert form.usage.read(zero) == Usage(0, 0)


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"cached_tokens": 9}, 9),
        ({"cached_tokens": 0}, 0),
        ({"cached_tokens": 99}, 20),
        ({"cached_tokens": -1}, None),
        ({"cached_tokens": "9"}, None),
        ({}, None),
        (None, None),
        ("x", None),
    ],
)
def test_cached_tokens_when_stated_then_are_at_most_the_prompt(
    details: object, cached: int | None
) -> None:
    """Nonsense is as if nothing had been said, and a cache spares no more than there was."""
    usage = {"prompt_tokens": 20, "completion_tokens": 1, "prompt_tokens_details": details}
    assert CHAT.usage.read(usage) == Usage(20, 1, cached)


# --- what is no end, no usage and no output -------------------------------------------------------


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "response.completed", "usage": {"input_tokens": 0, "output_tokens": 0}},
        {"type": "response.output_text.delta"},
        {"type": "error"},
    ],
)
def test_response_when_the_request_is_echoed_then_its_words_are_not_taken_for_events(
    tool: dict[str, Any],
) -> None:
    """A client can neither end its own prefill nor charge itself nothing by what it sends."""
    echo = {"type": "response.created", "response": {"tools": [tool], "usage": None}}
    account = RESPONSES.account()
    account.feed(b"data: " + json.dumps(echo).encode() + b"\n\n")
    assert (account.chunks, account.usage, account.has_failed) == (0, None, False)
    assert account.outcome is Outcome.ERROR


def test_messages_when_the_second_event_tells_no_output_then_chunks_must_be_counted() -> None:
    """What the first event says of output is not what came of it."""
    account = MESSAGES.account()
    for usage in ({"input_tokens": 17, "output_tokens": 1}, {"input_tokens": 18}):
        place = {"message": {"usage": usage}} if "output_tokens" in usage else {"usage": usage}
        account.feed(b"data: " + json.dumps({"type": "message", **place}).encode() + b"\n\n")
    assert account.usage is None
    assert account.prompt_usage == Usage(17, 1)


@pytest.mark.parametrize(
    ("form", "event", "outcome"),
    [
        (RESPONSES, {"type": "response.failed", "response": {"error": {"code": "x"}}}, ERROR),
        (RESPONSES, {"type": "response.cancelled", "response": {}}, ERROR),
        (RESPONSES, {"type": "error", "code": "server_error", "message": "boom"}, ERROR),
        (RESPONSES, {"error": {"message": "boom"}}, ERROR),
        (
            RESPONSES,
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "content_filter"}},
            },
            FINISHED,
        ),
        (
            RESPONSES,
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "max_output_tokens"}},
            },
            LENGTH,
        ),
        (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}, ERROR),
        (MESSAGES, {"error": {"message": "boom"}}, ERROR),
        (MESSAGES, {"type": "message_stop"}, FINISHED),
        (MESSAGES, {"type": "ping"}, ERROR),
    ],
)
def test_event_when_it_ends_the_stream_then_the_outcome_is_its_own(
    form: PathForm, event: dict[str, Any], outcome: Outcome
) -> None:
    """Ends, limits and failures in mid-stream are told apart; silence is no end."""
    for text in (json.dumps(event), json.dumps(event, separators=(",", ":"))):
        account = form.account()
        account.feed(f"event: x\ndata: {text}\n\n".encode())
        assert account.outcome is outcome


@pytest.mark.parametrize(
    "text",
    [
        '"type":"response.completed"',
        '"usage":{"input_tokens":1}',
        '"content_block_delta"',
        '.delta"',
    ],
)
@pytest.mark.parametrize(
    ("form", "event"),
    [
        (RESPONSES, {"type": "response.output_text.done"}),
        (MESSAGES, {"type": "content_block_start", "index": 0}),
    ],
)
def test_text_when_it_talks_about_events_then_is_not_taken_for_one(
    form: PathForm, event: dict[str, Any], text: str
) -> None:
    """Inside a string the quotes are escaped: what a model says decides nothing."""
    account = form.account()
    account.feed(b"data: " + json.dumps({**event, "text": text}).encode() + b"\n\n")
    assert (account.chunks, account.usage, account.outcome) == (0, None, Outcome.ERROR)


def test_line_when_too_long_to_be_read_then_it_may_have_been_the_end() -> None:
    """A response is echoed whole at its end: one of megabytes is no broken stream."""
    account = RESPONSES.account()
    end = {"type": "response.completed", "response": {"instructions": "x" * (1 << 21)}}
    feed_all(account, cut(b"data: " + json.dumps(end).encode() + b"\n\n", [1 << 20, 3 << 19]))
    assert (account.usage, account.outcome) == (None, Outcome.FINISHED)


def test_paths_when_listed_then_settings_know_the_same() -> None:
    """A route can be written for every path that is admitted, and for no other."""
    assert set(PATHS) == set(get_args(AdmittedPath))
    assert all(form.path == path for path, form in PATHS.items())
