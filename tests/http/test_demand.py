"""What a request asks for, and which body is forwarded for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.http.demand import BadRequest, Demand, Room, parse_body, shape
from tokenweir.http.paths.chat import CHAT as CHAT_FORM
from tokenweir.http.paths.completions import COMPLETIONS as TEXT_FORM
from tokenweir.http.paths.form import PathForm
from tokenweir.http.prompt_estimate import MEDIA_TOKENS, PromptSize, TokenRatios

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TEXT = {"model": "m", "prompt": "hello"}


def raw(members: Any) -> bytes:
    """A body as a client would write it, with spaces that a rewrite would lose."""
    return json.dumps(members).encode()


def demand(members: Any, *, form: PathForm = CHAT_FORM, most: int = 4_096) -> Demand:
    """What a body asks for."""
    return shape(parse_body(raw(members), form), output_tokens_max=most)


def test_body_when_within_the_route_then_forwarded_byte_for_byte() -> None:
    """Nothing is written anew that need not be."""
    body = b'{ "messages": [{"role":"user","content":"h\\u00e9"}],  "max_tokens": 7, "x": 1.0 }'
    got = shape(parse_body(body, CHAT_FORM), output_tokens_max=8)
    assert got.body is body
    assert (got.output_tokens_max, got.changes, got.is_lowered) == (7, (), False)


def test_maximum_when_missing_then_the_routes_is_spliced_in() -> None:
    """Without it no reservation could be enforced; the rest stays byte for byte."""
    body = raw({**CHAT, "big": 12345678901234567890})
    got = shape(parse_body(body, CHAT_FORM), output_tokens_max=100)
    assert got.body == b'{"max_tokens":100,' + body[1:]
    assert got.changes == ("max_tokens=100",)
    assert got.output_tokens_max == 100
    assert not got.is_lowered


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_maximum_when_above_the_route_then_lowered_in_its_own_member(name: str) -> None:
    """The client is told, and the engine gets what was reserved."""
    got = demand({**CHAT, name: 10**9}, most=256)
    assert json.loads(got.body) == {**CHAT, name: 256}
    assert got.changes == (f"{name}=256",)
    assert got.is_lowered


def test_maximum_when_null_then_taken_as_missing() -> None:
    """A null is what some clients send for a default."""
    got = demand({**CHAT, "max_tokens": None}, most=64)
    assert json.loads(got.body)["max_tokens"] == 64


def test_maxima_when_they_conflict_then_the_larger_counts_after_clamping() -> None:
    """An engine may take either of them."""
    got = demand({**CHAT, "max_tokens": 1, "max_completion_tokens": 500}, most=300)
    assert got.output_tokens_max == 300
    assert json.loads(got.body)["max_tokens"] == 1


@pytest.mark.parametrize(
    ("members", "sequences"),
    [({"n": 4}, 4), ({"n": 2, "best_of": 5}, 5), ({}, 1), ({"n": None}, 1)],
)
def test_output_when_several_answers_are_asked_for_then_multiplied(
    members: dict[str, Any], sequences: int
) -> None:
    """Each answer may be as long as the maximum."""
    got = demand({**TEXT, "max_tokens": 10, **members}, form=TEXT_FORM)
    assert got.sequences == sequences
    assert got.output_tokens_max == 10 * sequences


def test_output_when_several_prompts_are_sent_then_multiplied() -> None:
    """Each prompt of a list is a sequence of its own."""
    got = demand({"prompt": ["a", "b", "c"], "max_tokens": 5, "n": 2}, form=TEXT_FORM)
    assert got.output_tokens_max == 30


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n", "best_of"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 5.0, True, "7", [1], 10**400])
def test_number_when_not_a_positive_integer_then_refused(name: str, value: Any) -> None:
    """What cannot be reserved for is not guessed at; a huge integer is clamped, n is bounded."""
    if value == 10**400 and name.startswith("max"):
        assert demand({**CHAT, name: value}, most=9).output_tokens_max == 9
        return
    with pytest.raises(BadRequest) as caught:
        demand({**CHAT, name: value})
    assert caught.value.param in {name, "n"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"messages": []',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 100_000,
        '{"messages": []}'.encode("utf-16"),
        b'{"model": "m"}',
        b'{"messages": "hello"}',
        b'{"messages": {}, "model": "m"}',
        b'{"messages": [], "model": 7}',
        b'{"messages": [], "model": "' + b"m" * 300 + b'"}',
        b'{"messages": [], "n": ' + b"9" * 5_000 + b"}",
    ],
)
def test_body_when_not_what_the_api_asks_for_then_refused(body: bytes) -> None:
    """Whatever arrives, the answer is a refusal without any of its text."""
    with pytest.raises(BadRequest) as caught:
        shape(parse_body(body, CHAT_FORM), output_tokens_max=10)
    assert "hello" not in str(caught.value)


@pytest.mark.parametrize("prompt", [None, 7, {}, [], [1, "a"], [[1], ["a"]], [1.5], [[1], "a"]])
def test_prompt_when_of_a_wrong_kind_then_refused(prompt: Any) -> None:
    """A completion's prompt is a text, texts, token ids, or lists of token ids."""
    with pytest.raises(BadRequest):
        demand({"prompt": prompt}, form=TEXT_FORM)


@pytest.mark.parametrize("value", [1, "true", [True]])
def test_stream_when_not_a_boolean_then_refused(value: Any) -> None:
    """An engine may take it for true, and then stream what we would take for a body."""
    with pytest.raises(BadRequest):
        demand({**CHAT, "stream": value})


def test_stream_when_usage_is_not_asked_for_then_we_ask_and_hide_it() -> None:
    """The account needs it; the client does not get what it did not ask for."""
    body = raw({**CHAT, "stream": True, "max_tokens": 5})
    got = shape(parse_body(body, CHAT_FORM), output_tokens_max=10)
    assert got.body == b'{"stream_options":{"include_usage":true},' + body[1:]
    assert got.hides_usage
    assert got.changes == ()


def test_stream_when_usage_is_asked_for_then_body_stays_and_nothing_is_hidden() -> None:
    """The client's own wish is forwarded as it is."""
    members = {**CHAT, "stream": True, "max_tokens": 5, "stream_options": {"include_usage": True}}
    body = raw(members)
    got = shape(parse_body(body, CHAT_FORM), output_tokens_max=10)
    assert got.body is body
    assert not got.hides_usage


@pytest.mark.parametrize("options", [{}, {"include_usage": False}, {"other": 1}, None])
def test_stream_when_options_lack_usage_then_the_others_are_kept(options: Any) -> None:
    """Only the one member is written over."""
    got = demand({**CHAT, "stream": True, "max_tokens": 5, "stream_options": options})
    assert json.loads(got.body)["stream_options"] == {**(options or {}), "include_usage": True}
    assert got.hides_usage


@given(
    text=st.text(),
    extra=st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.none(), max_size=3),
    most=st.integers(1, 10**6),
)
def test_body_when_changed_then_every_other_member_survives(
    text: str, extra: dict[str, Any], most: int
) -> None:
    """Whatever else a client sends, the engine gets it, lone surrogates and all."""
    members = {**extra, "messages": [{"role": "user", "content": text}]}
    for name in ("model", "n", "best_of", "stream", "stream_options", "max_completion_tokens"):
        members.pop(name, None)
    members["max_tokens"] = 10**9
    got = demand(members, most=most)
    assert json.loads(got.body) == {**members, "max_tokens": most}


def test_size_when_read_then_counts_bytes_messages_media_and_tools() -> None:
    """All that the engine will write into the prompt is seen."""
    parts = [
        {"type": "text", "text": "héllo"},
        {"type": "image_url", "image_url": {"url": "data:..."}},
    ]
    members = {
        "messages": [
            {"role": "system", "content": "abc"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [{"id": 1}]},
        ],
        "tools": [{"type": "function"}],
        "max_tokens": 1,
    }
    size = demand(members).size
    assert size.messages == 3
    assert size.media == 1
    assert size.text_bytes == 3 + 6 + len('[{"id": 1}]') + len('[{"type": "function"}]')


def test_size_when_prompt_is_token_ids_then_exact() -> None:
    """Counted tokens are not estimated."""
    ratios = TokenRatios()
    one = demand({"prompt": list(range(100))}, form=TEXT_FORM).size
    two = demand({"prompt": [[1] * 30, [2] * 70]}, form=TEXT_FORM).size
    assert ratios.prompt_tokens("m", one) == ratios.prompt_tokens("m", two) == 100


def test_estimate_when_media_are_sent_then_each_costs_its_flat_share() -> None:
    """An image is not free because it has no text."""
    assert TokenRatios().prompt_tokens("m", PromptSize(0, media=2)) == 2 * MEDIA_TOKENS


def test_repr_when_shown_then_has_no_text_of_the_prompt() -> None:
    """What may end up in a log shows sizes only."""
    parsed = parse_body(raw({**CHAT, "max_tokens": 5}), CHAT_FORM)
    assert "hello" not in repr(parsed)
    assert "hello" not in repr(shape(parsed, output_tokens_max=10))


# --- what the engine's context leaves -------------------------------------------------------------


def with_context(members: dict[str, Any], *, prompt: int, context: int, most: int) -> Demand:
    """Shape a body whose prompt is estimated at so many tokens."""
    room = Room.beside(prompt, context_tokens=context)
    parsed = parse_body(json.dumps(members).encode(), CHAT_FORM)
    return shape(parsed, output_tokens_max=most, room_beside=lambda size: room)


MESSAGES = [{"role": "user", "content": "hello"}]


def test_maximum_when_missing_and_the_context_is_tight_then_is_left_to_the_engine() -> None:
    """A written maximum that does not fit would be refused; the engine's own bound is exact."""
    got = with_context({"messages": MESSAGES}, prompt=5_000, context=8_192, most=4_096)
    assert b"max_tokens" not in got.body
    assert got.output_tokens_max == 8_192 - 5_000
    assert got.changes == ()


def test_maximum_when_missing_and_the_context_is_ample_then_the_routes_is_written() -> None:
    """With room to spare even for a wrong estimate, the route's maximum holds."""
    got = with_context({"messages": MESSAGES}, prompt=1_000, context=8_192, most=4_096)
    assert json.loads(got.body)["max_tokens"] == 4_096


def test_maximum_when_clamped_then_to_what_the_context_leaves() -> None:
    """A huge maximum becomes one that the engine accepts, and at least 1."""
    huge = {"messages": MESSAGES, "max_tokens": 10**9}
    got = with_context(huge, prompt=1_000, context=2_048, most=4_096)
    assert json.loads(got.body)["max_tokens"] == 2_048 - 1_000 - 250
    got = with_context(huge, prompt=3_000, context=2_048, most=4_096)
    assert json.loads(got.body)["max_tokens"] == 1


def test_maximum_when_within_the_routes_then_is_the_clients_own_affair() -> None:
    """What the client declared itself is forwarded as it is, fitting or not."""
    members = {"messages": MESSAGES, "max_tokens": 3_000}
    got = with_context(members, prompt=1_000, context=2_048, most=4_096)
    assert got.body == json.dumps(members).encode()
    assert got.output_tokens_max == 3_000


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    "body",
    [
        '{"messages": [], "max_tokens": 9999, "temperature": %s}',
        '{"messages": [{"role": "user", "content": [%s]}]}',
    ],
)
def test_number_when_it_is_none_then_refused_wherever_it_stands(number: str, body: str) -> None:
    """Written anew it would be no JSON any more, and the engine would be blamed."""
    with pytest.raises(BadRequest):
        parse_body((body % number).encode(), CHAT_FORM)


def test_number_when_small_or_long_then_taken() -> None:
    """An underflow is zero, and digits beyond a float's are no mistake."""
    body = b'{"messages": [], "temperature": 1e-400, "x": 0.1234567890123456789}'
    parsed = parse_body(body, CHAT_FORM)
    assert parsed.members["temperature"] == 0


@pytest.mark.parametrize(
    "body",
    [
        '{"max_tokens": 1, "messages": [], "max_tokens": 9}',
        '{"n": 100, "messages": [], "n": 1}',
        '{"stream": true, "messages": [], "stream": true}',
        '{"m\\u0061x_tokens": 100000, "messages": [], "max_tokens": 1}',
        '{"messages": [], "stream_options": {"include_usage": false, "include_usage": true}}',
        '{"messages": [{"role": "user", "content": "long", "content": "x"}]}',
    ],
)
def test_member_when_it_stands_twice_then_refused(body: str) -> None:
    """Which of the two an engine would read is not known, so none of them can be reserved for."""
    with pytest.raises(BadRequest, match="stands twice"):
        parse_body(body.encode(), CHAT_FORM)
