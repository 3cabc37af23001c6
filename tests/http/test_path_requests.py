"""What is read of each path's request, and what is refused in one clear line."""

import json
from typing import Any

import pytest

from tokenweir.http.demand import BadRequest, Demand, parse_body, shape
from tokenweir.http.paths import PATHS
from tokenweir.http.paths.embeddings import EMBEDDINGS
from tokenweir.http.paths.form import PathForm
from tokenweir.http.paths.messages import MESSAGES
from tokenweir.http.paths.responses import RESPONSES
from tokenweir.http.prompt_estimate import FLOOR_TOKENS, PromptSize, TokenRatios

HELLO = [{"role": "user", "content": "hello"}]
# A small good body of every path.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/embeddings": {"input": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO},
}
FORMS = list(PATHS.values())
WRITING = [form for form in FORMS if form.output_members]


def demand(form: PathForm, *, most: int = 4_096, **members: Any) -> Demand:
    """What a body asks for."""
    raw = json.dumps({**BODIES[form.path], **members}).encode()
    return shape(parse_body(raw, form), output_tokens_max=most)


@pytest.mark.parametrize("form", FORMS)
def test_body_when_it_carries_what_we_do_not_know_then_forwarded_byte_for_byte(
    form: PathForm,
) -> None:
    """Tools, schemas, references and options of tomorrow are the engine's business."""
    extra = {
        "model": "m",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        "text": {"format": {"type": "json_schema", "schema": {"a": 1.50}}},
        "option_of_tomorrow": [None, {"deep": "\u00e9"}],
        **dict.fromkeys(form.output_members, 7),
    }
    raw = json.dumps({**BODIES[form.path], **extra}, indent=1).encode()
    got = shape(parse_body(raw, form), output_tokens_max=8)
    assert got.body is raw
    assert (got.changes, got.sequences) == ((), 1)


@pytest.mark.case("CASE-C7")
@pytest.mark.parametrize("form", WRITING)
def test_maximum_when_missing_then_the_routes_is_written_in_the_paths_own_member(
    form: PathForm,
) -> None:
    """Nobody has to declare one, though a reservation needs one; the rest stays byte for byte."""
    got = demand(form, most=64)
    name = form.output_members[0]
    assert got.body == json.dumps({name: 64, **BODIES[form.path]}).encode().replace(
        b'": 64, ', b'":64,', 1
    )
    assert (got.output_tokens_max, got.changes) == (64, (f"{name}=64",))


@pytest.mark.parametrize("form", WRITING)
def test_maximum_when_above_the_route_then_lowered(form: PathForm) -> None:
    """A thousand million tokens are not reserved on any path."""
    name = form.output_members[0]
    got = demand(form, most=64, **{name: 10**9})
    assert json.loads(got.body)[name] == 64
    assert (got.output_tokens_max, got.is_lowered) == (64, True)


def test_embeddings_when_asked_for_then_nothing_is_written_and_no_output_is_reserved() -> None:
    """Nothing is generated: every input is read, and that is all."""
    got = demand(EMBEDDINGS, input=["one text", "two"], max_tokens=500, stream=True, n=7)
    assert json.loads(got.body)["max_tokens"] == 500
    assert (got.output_tokens_max, got.sequences, got.is_streamed) == (1, 1, False)
    assert got.size == PromptSize(11)


@pytest.mark.parametrize("form", WRITING)
def test_usage_when_the_form_tells_it_unasked_then_no_wish_is_written(form: PathForm) -> None:
    """Only chat and text completions know the wish; others would refuse a body that has it."""
    got = demand(form, stream=True, **{form.output_members[0]: 5})
    assert got.is_streamed
    assert got.hides_usage == ("stream_options" in json.loads(got.body)) == form.asks_usage


@pytest.mark.parametrize("form", FORMS)
def test_n_when_the_path_knows_it_then_multiplies_and_else_is_not_read(form: PathForm) -> None:
    """What no engine of the path reads is neither reserved for nor refused."""
    got = demand(form, n=3, **dict.fromkeys(form.output_members, 10))
    assert got.sequences == (3 if "n" in form.count_members else 1)


BAD: list[tuple[PathForm, dict[str, Any], str, str]] = [
    (EMBEDDINGS, {"input": None}, "input", "input is missing, or neither a string nor a list"),
    (EMBEDDINGS, {"input": []}, "input", "input is an empty list"),
    (EMBEDDINGS, {"input": [1, "a"]}, "input", "input mixes strings, token ids and lists"),
    (EMBEDDINGS, {"input": ["a"] * 2_049}, "input", "input has 2049 entries, allowed: 2048"),
    (RESPONSES, {"input": None}, "input", "input is missing"),
    (RESPONSES, {"input": 7}, "input", "input is neither a string nor a list"),
    (RESPONSES, {"background": True}, "background", "background is not served here"),
    (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens", "not an integer of 1 or more"),
    (RESPONSES, {"stream": 1}, "stream", "stream is not a boolean"),
    (MESSAGES, {"messages": None}, "messages", "messages is missing or not a list"),
    (MESSAGES, {"messages": "hello"}, "messages", "messages is missing or not a list"),
    (MESSAGES, {"system": 7}, "system", "system is neither a string nor a list"),
    (MESSAGES, {"max_tokens": "7"}, "max_tokens", "not an integer of 1 or more"),
]


@pytest.mark.parametrize(("form", "members", "param", "message"), BAD)
def test_body_when_bad_then_refused_in_one_clear_line(
    form: PathForm, members: dict[str, Any], param: str, message: str
) -> None:
    """The line says what is wrong, and which member."""
    with pytest.raises(BadRequest, match=message) as caught:
        demand(form, **members)
    assert caught.value.param == param
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", [RESPONSES, MESSAGES])
def test_body_when_nested_beyond_reading_then_refused_and_not_a_bug(form: PathForm) -> None:
    """Contents are read by recursion, so their depth is bounded by the interpreter's."""
    deep: Any = "x"
    for _ in range(400):
        deep = [{"content": deep}]
    name = "input" if form is RESPONSES else "messages"
    with pytest.raises(BadRequest, match=r"nested too deeply|not JSON"):
        demand(form, **{name: [{"role": "user", "content": deep}]})


# --- how large a prompt is ------------------------------------------------------------------------

TOOLS = [{"type": "function", "name": "f"}]
TOOLS_BYTES = len('[{"type": "function", "name": "f"}]')


def test_size_when_messages_are_read_then_every_block_counts() -> None:
    """System, texts, thoughts, tool calls, tool results, documents and images are all read."""
    blocks = [
        {"type": "text", "text": "h\u00e9llo"},
        {"type": "image", "source": {"type": "url", "url": "http://images.example/" + "x" * 999}},
        {"type": "document", "source": {"type": "text", "data": "d" * 50}},
        {"type": "document", "source": {"type": "base64", "data": "d" * 9_999}},
        {"type": "thinking", "thinking": "t" * 20, "signature": "s" * 999},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r" * 7}]},
    ]
    got = demand(
        MESSAGES,
        system=[{"type": "text", "text": "s" * 30}],
        messages=[*HELLO, {"role": "user", "content": blocks}],
        tools=TOOLS,
        max_tokens=9,
    )
    text_bytes = 5 + 6 + 50 + 20 + (1 + len('{"a": 1}')) + 7 + 30 + TOOLS_BYTES
    assert got.size == PromptSize(text_bytes, messages=3, media=2)


def test_size_when_a_response_is_asked_for_then_every_item_counts() -> None:
    """Instructions, messages, calls and their results, reasoning, images and references."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "abc"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:" + "x" * 999}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "1", "output": "o" * 12},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s" * 8}]},
        {"type": "item_reference", "id": "msg_1"},
    ]
    got = demand(RESPONSES, input=items, instructions="i" * 10, tools=TOOLS, max_output_tokens=9)
    assert got.size == PromptSize(3 + (1 + 7) + 12 + 8 + 10 + TOOLS_BYTES, messages=6, media=2)


@pytest.mark.case("CASE-B2")
@pytest.mark.parametrize(
    ("form", "members"),
    [
        (PATHS["/v1/chat/completions"], {"messages": []}),
        (PATHS["/v1/completions"], {"prompt": ""}),
        (EMBEDDINGS, {"input": ""}),
        (MESSAGES, {"messages": []}),
        (RESPONSES, {"input": ""}),
        (RESPONSES, {"input": None, "previous_response_id": "resp_1"}),
        (RESPONSES, {"input": None, "prompt": {"id": "stored"}}),
    ],
)
def test_size_when_nothing_can_be_estimated_then_a_floor_is_reserved(
    form: PathForm, members: dict[str, Any]
) -> None:
    """No request is free, and what goes on from something stored is not refused."""
    got = demand(form, **members)
    assert TokenRatios().prompt_tokens("m", got.size) == FLOOR_TOKENS
