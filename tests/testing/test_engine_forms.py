"""The emulated engine on the paths beside chats and plain prompts, in the recorded forms."""

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tokenweir.http.paths import PATHS
from tokenweir.testing.engine_forms import FORMS
from tokenweir.testing.engine_wire import EngineCall, WireError

RECORDED = Path(__file__).parents[1] / "fixtures" / "wire"
PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50},
    "/v1/responses": {"input": "hi"},
    "/v1/embeddings": {"input": ["hi", "there"]},
}


def call_of(path: str, **fields: Any) -> EngineCall:
    """Parse a body with a short prompt and these fields."""
    body = json.dumps({**PROMPTS[path], **fields}).encode()
    return FORMS[path].parse(path, body, context_tokens=1_000)


def stream_of(call: EngineCall) -> bytes:
    """Render a whole stream."""
    writer = FORMS[call.path].writer(call, f"{FORMS[call.path].id_prefix}1")
    opening = writer.opening()
    tokens = [writer.token(index) for index in range(call.output_tokens)]
    return b"".join((opening, *tokens, writer.closing()))


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the data of every event that has a name, which must be its type."""
    events = []
    for event in stream.decode().strip().split("\n\n"):
        name, _, data = event.partition("\n")
        members = json.loads(data.removeprefix("data: "))
        assert name == f"event: {members['type']}"
        events.append(members)
    return events


def kinds_of(stream: bytes) -> list[str]:
    """Return the types of the events, each once where it repeats."""
    kinds = [event["type"] for event in events_of(stream)]
    return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]


def test_forms_when_listed_then_are_the_paths_that_the_gateway_admits() -> None:
    """Whatever the gateway forwards, the emulated engine answers."""
    assert set(FORMS) == set(PATHS)


@pytest.mark.parametrize(
    ("path", "recorded"),
    [
        ("/v1/messages", "messages_stream.sse.gz"),
        ("/v1/responses", "openai_responses_stream.sse.gz"),
    ],
)
def test_stream_when_written_then_has_the_recorded_events_in_their_order(
    path: str, recorded: str
) -> None:
    """A client sees the sequence of events that it sees of the real one."""
    real = gzip.decompress((RECORDED / recorded).read_bytes())

    assert kinds_of(stream_of(call_of(path, emulated_output_tokens=5))) == kinds_of(real)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_stream_when_the_gateway_counts_it_then_it_tells_what_the_whole_answer_tells(
    path: str,
) -> None:
    """Usage in the stream, usage in the whole body and what was produced are one number."""
    call = call_of(path, emulated_output_tokens=7)
    account = PATHS[path].account()
    account.feed(stream_of(call))
    whole = json.loads(FORMS[path].writer(call, "id-1").whole())

    assert account.usage is not None
    assert account.chunks == 7
    assert (account.usage.prompt_tokens, account.usage.output_tokens) == (call.prompt_tokens, 7)
    assert whole["usage"]["output_tokens"] == 7


@pytest.mark.parametrize(
    ("path", "maximum"), [("/v1/messages", "max_tokens"), ("/v1/responses", "max_output_tokens")]
)
def test_stream_when_the_maximum_is_reached_then_it_is_told_as_cut(path: str, maximum: str) -> None:
    """The end by length shows as each API shows it."""
    call = call_of(path, **{maximum: 3}, emulated_output_tokens=9)
    account = PATHS[path].account()
    account.feed(stream_of(call))

    assert call.output_tokens == 3
    assert account.is_cut


def test_responses_when_streamed_then_events_are_numbered_without_gap() -> None:
    """Each event has the next number, as clients check."""
    events = events_of(stream_of(call_of("/v1/responses", emulated_output_tokens=12)))

    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_embeddings_when_asked_as_base64_then_hold_the_same_vectors() -> None:
    """Both encodings hold one vector per text, and a text has the same one every time."""
    plain = json.loads(FORMS["/v1/embeddings"].writer(call_of("/v1/embeddings"), "e").whole())
    call = call_of("/v1/embeddings", encoding_format="base64")
    packed = json.loads(FORMS["/v1/embeddings"].writer(call, "e").whole())

    vectors = [entry["embedding"] for entry in plain["data"]]
    assert len(vectors) == 2
    assert vectors[0] != vectors[1]
    for vector, entry in zip(vectors, packed["data"], strict=True):
        unpacked = struct.unpack("<8f", base64.b64decode(entry["embedding"]))
        assert unpacked == pytest.approx(vector)
    assert plain["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/messages", {"max_tokens": None}, "max_tokens"),
        ("/v1/messages", {"messages": []}, "messages"),
        ("/v1/messages", {"max_tokens": 0}, "max_tokens"),
        ("/v1/responses", {"input": []}, "input"),
        ("/v1/responses", {"input": None}, "input"),
        ("/v1/responses", {"previous_response_id": "resp_0"}, "previous_response_id"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": [{"x": 1}]}, "input"),
        ("/v1/embeddings", {"input": None}, "input"),
    ],
)
def test_parse_when_a_body_is_wrong_then_the_error_names_the_member(
    path: str, fields: dict[str, Any], param: str
) -> None:
    """What cannot be served is refused with the name of what is wrong, in the path's form."""
    with pytest.raises(WireError) as raised:
        call_of(path, **fields)

    assert raised.value.param == param
    body = json.loads(FORMS[path].error(raised.value))
    assert body["error"]["message"] == raised.value.message
    assert (body.get("type") == "error") == (path == "/v1/messages")
