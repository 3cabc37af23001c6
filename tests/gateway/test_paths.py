"""Every admitted path through a real gateway: recorded answers pass, and are charged for."""

import asyncio
import contextlib
import json
from typing import Any, TypeAlias

import aiohttp
import openai
import pytest

from tests.gateway.clients import post, session
from tests.gateway.processes import Server, gateway, ledger_of, metric
from tests.gateway.scripted import Call, Script, answer, scripted
from tests.http.wire import recorded
from tests.polling import eventually

pytestmark = pytest.mark.integration

HELLO = [{"role": "user", "content": "hello"}]
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"

TOOLS: Any = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
ZERO = b"""data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}

data: [DONE]

"""
EMBEDDED = b"""{"object":"list","model":"m","data":[{"object":"embedding","index":0,
"embedding":[0.25,-0.5]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"""
# Longer than what is kept of an answer.
LONG = EMBEDDED.replace(b"0.25,", b"0.25," * (2 << 20))

# Path, body, what the engine says, prompt and output tokens that are charged.
Row: TypeAlias = tuple[str, dict[str, Any], bytes, tuple[int, int]]
STREAMS: list[Row] = [
    (MESSAGES, {"messages": HELLO}, recorded("anthropic_stream_text.sse"), (17, 171)),
    (MESSAGES, {"messages": HELLO}, recorded("anthropic_stream_tool_use.sse"), (506, 153)),
    (
        MESSAGES,
        {"messages": HELLO},
        recorded("anthropic_stream_prompt_cache_read.sse"),
        (1169, 221),
    ),
    (RESPONSES, {"input": "hello"}, recorded("openai_responses_stream.sse"), (22, 6)),
    (CHAT, {"messages": HELLO}, recorded("deepseek_stream_reasoning_content.sse"), (6, 212)),
    (CHAT, {"messages": HELLO, "n": 2}, recorded("openai_chat_stream_n2_choices.sse"), (26, 104)),
    (CHAT, {"messages": HELLO}, ZERO, (0, 0)),
]
ANSWERS: list[Row] = [
    (MESSAGES, {"messages": HELLO}, recorded("messages_nonstream.json"), (17, 8)),
    (CHAT, {"messages": HELLO}, recorded("openai_chat_tool_call_nonstream.json"), (75, 51)),
    (EMBEDDINGS, {"input": ["a", "b"]}, EMBEDDED, (8, 0)),
    (EMBEDDINGS, {"input": ["a", "b"]}, LONG, (8, 0)),
]
# Path, body, the member that is wrong, the line.
BAD: list[tuple[str, dict[str, Any], str, str]] = [
    (EMBEDDINGS, {}, "input", "input is missing, or neither a string nor a list"),
    (RESPONSES, {"model": "m"}, "input", "input is missing"),
    (MESSAGES, {"messages": "x"}, "messages", "messages is missing or not a list"),
    (CHAT, {"prompt": "x"}, "messages", "messages is missing or not a list"),
]


def replay(body: bytes, *, piece_bytes: int = 700) -> Script:
    """Stream a recording in pieces that respect no line."""

    async def script(call: Call) -> None:
        await call.start()
        for at in range(0, len(body), piece_bytes):
            await call.chunk(body[at : at + piece_bytes])
            await asyncio.sleep(0)
        await call.end()

    return script


def whole(body: bytes) -> Script:
    """Answer with one body."""

    async def script(call: Call) -> None:
        await answer(call, body)

    return script


def charged(server: Server) -> tuple[float, float]:
    """Prompt and output tokens of all settled requests."""
    prompt = metric(server.admin_url, "tokenweir_prompt_tokens_total")
    return prompt, metric(server.admin_url, "tokenweir_output_tokens_total")


async def nothing_held(server: Server) -> None:
    """Wait until everything is given back."""
    await eventually(lambda: ledger_of(server)["in_flight"] == 0)
    # After an error an engine is given a moment to let go.
    await eventually(lambda: ledger_of(server)["used_tokens"] == 0)


@pytest.mark.case("CASE-C2", "CASE-C4")
async def test_stream_when_recorded_then_passes_byte_for_byte_and_is_charged() -> None:
    """Tools, reasoning, split usage, zeros, errors in mid-stream: each as the engine sent it."""
    async with (
        session() as client,
        scripted(replay(b"")) as upstream,
        gateway(upstream.url) as server,
    ):
        before = charged(server)
        for path, body, said, tokens in STREAMS:
            upstream.script = replay(said)
            # Who asks for usage gets all of the stream.
            asked = {"stream_options": {"include_usage": True}} if path == CHAT else {}
            got = await post(client, server.url + path, {"stream": True, **asked, **body})
            assert (got.status, got.body) == (200, said)
            assert upstream.calls[-1].path == path
            await nothing_held(server)
            now = charged(server)
            assert (now[0] - before[0], now[1] - before[1]) == tokens
            before = now
        # Of all these one was cached, and all but the last told a prompt that was estimated.
        url = server.admin_url
        assert metric(url, "tokenweir_cached_prompt_tokens_total") == 1_165
        assert metric(url, "tokenweir_prompt_estimate_ratio_count") == len(STREAMS) - 1
        assert metric(url, "tokenweir_prompt_estimate_ratio_sum") > 0


@pytest.mark.case("CASE-C1")
async def test_answer_when_whole_then_passes_byte_for_byte_and_is_charged() -> None:
    """Every form tells its usage in a whole answer too; a long one at its end."""
    async with (
        session() as client,
        scripted(replay(b"")) as upstream,
        gateway(upstream.url) as server,
    ):
        before = charged(server)
        for path, body, said, tokens in ANSWERS:
            upstream.script = whole(said)
            got = await post(client, server.url + path, body)
            assert (got.status, got.body) == (200, said)
            await nothing_held(server)
            now = charged(server)
            assert (now[0] - before[0], now[1] - before[1]) == tokens
            before = now


async def test_openai_client_when_it_uses_the_new_paths_then_it_reads_what_the_engine_said() -> (
    None
):
    """The real client, streamed and not: responses, embeddings and the models."""
    async with (
        scripted(replay(recorded("openai_responses_stream.sse"))) as upstream,
        gateway(upstream.url) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
    ):
        events = await client.responses.create(
            model="m", input="hello", tools=TOOLS, stream=True, max_output_tokens=64
        )
        kinds, text = [], ""
        async for event in events:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        assert text == "This is a test."
        assert kinds[-1] == "response.completed"
        assert upstream.calls[0].members["tools"] == TOOLS
        assert upstream.calls[0].members["max_output_tokens"] == 64
        upstream.script = whole(EMBEDDED)
        embedded = await client.embeddings.create(model="m", input=["a", "b"])
        assert embedded.usage.prompt_tokens == 8
        assert len(embedded.data[0].embedding) == 2
        assert "max_tokens" not in upstream.calls[1].members
        await nothing_held(server)
        assert charged(server) == (22 + 8, 6)


async def test_refusal_when_on_any_path_then_its_own_clients_can_read_it() -> None:
    """One line of what is wrong, in an error object; clients of events find its type beside it."""
    async with (
        session() as client,
        scripted(replay(b"")) as upstream,
        gateway(upstream.url) as server,
    ):
        for path, body, param, line in BAD:
            got = await post(client, server.url + path, body)
            error = got.members["error"]
            assert (got.status, got.code, error["param"]) == (400, "bad_request", param)
            assert error["message"] == line
            assert got.members.get("type") == ("error" if path in {RESPONSES, MESSAGES} else None)
            assert got.headers["x-should-retry"] == "false"
        assert upstream.calls == []


async def test_stream_when_the_engine_breaks_off_then_the_error_event_is_the_paths_own() -> None:
    """A client of messages or responses finds ``type`` where it looks for it."""
    said = recorded("anthropic_stream_text.sse")

    async def broken(call: Call) -> None:
        await call.start()
        await call.chunk(said[:2_000])
        await asyncio.sleep(0.05)
        call.cut()

    async with (
        session() as client,
        scripted(broken) as upstream,
        gateway(upstream.url) as server,
    ):
        async with client.post(
            server.url + MESSAGES, json={"messages": HELLO, "max_tokens": 99, "stream": True}
        ) as response:
            got = b""
            with contextlib.suppress(aiohttp.ClientPayloadError):
                async for piece in response.content.iter_any():
                    got += piece
        last = json.loads(got.split(b"event: error\ndata: ")[1])
        assert (last["type"], last["error"]["code"]) == ("error", "upstream_broken")
        await nothing_held(server)
        prompt, output = charged(server)
        # The prompt as it was told, and the chunks that came instead of the usage that did not.
        assert prompt == 17
        assert output == said[:2_000].count(b'"type":"text_delta"') > 0
