"""What does the emulated engine understand of chats and plain prompts, and how does it answer them?

Bodies, chunks and errors have the form that vLLM 0.32 gave when it was recorded
(tests/fixtures/wire). Any model name is served: the answer carries the name that was asked for.
What requests of every path have in common is read here too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from tokenweir.testing.engine_text import (
    answer_words,
    chat_prompt_tokens,
    drawn_output_tokens,
    text_tokens,
)

__all__ = [
    "CHAT_PATH",
    "COMPLETIONS_PATH",
    "DONE_EVENT",
    "SERVED_MODEL",
    "AnswerWriter",
    "EngineCall",
    "WireError",
    "call_from",
    "chat_messages",
    "compact",
    "json_object",
    "parse_call",
    "plain_prompt",
]

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
SERVED_MODEL = "emulated"
DONE_EVENT = b"data: [DONE]\n\n"


class WireError(Exception):
    """A request is answered with an error body; the text is its message."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """Return the error object as vLLM writes it."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param or None,
            "code": self.status,
        }
        return compact({"error": error})


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request, understood.

    Attributes:
        path: Where it was sent to.
        model: The name asked for, returned in the answer.
        prompt_tokens: By the rule of engine_text, at least 1.
        output_tokens: How long the answer is, at least 1, at most the declared maximum.
        finish_reason: ``length`` where the answer reaches the maximum, else ``stop``.
        is_stream: Answer as server-sent events.
        has_usage: Streams only: end with a usage chunk.
        inputs: Embeddings only: the texts.
        is_base64: Embeddings only: a vector is packed floats in base64.
    """

    path: str
    model: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    is_stream: bool
    has_usage: bool
    inputs: tuple[str, ...] = ()
    is_base64: bool = False

    @property
    def is_chat(self) -> bool:
        """Whether it came by the chat path."""
        return self.path == CHAT_PATH


def parse_call(path: str, body: bytes, *, context_tokens: int) -> EngineCall:
    """Understand a request body.

    Args:
        path: ``CHAT_PATH`` or ``COMPLETIONS_PATH``.
        body: As received.
        context_tokens: Prompt and output together can be no longer.

    Raises:
        WireError: The body is malformed, or the request could never run.
    """
    fields = json_object(body)
    prompt = chat_messages(fields) if path == CHAT_PATH else plain_prompt(fields)
    if fields.get("n") not in (None, 1):
        raise WireError("the emulated engine gives one answer: n must be 1", param="n")
    return call_from(fields, prompt, path=path, context_tokens=context_tokens)


def call_from(
    fields: dict[str, Any],
    prompt: tuple[str, int],
    *,
    path: str,
    context_tokens: int,
    maxima: tuple[str, ...] = ("max_tokens", "max_completion_tokens"),
) -> EngineCall:
    """Understand what is asked of the answer.

    Args:
        fields: Of the request.
        prompt: Its text, and its tokens, at least 1.
        path: Where it was sent to.
        context_tokens: Prompt and output together can be no longer.
        maxima: The members that may declare a maximum; a later one goes before an earlier.

    Raises:
        WireError: The request could never run.
    """
    text, prompt_tokens = prompt
    output_max = _output_tokens_max(
        fields, prompt_tokens, context_tokens=context_tokens, maxima=maxima
    )
    stated = _positive_int(fields, "emulated_output_tokens")
    if stated is not None:
        output_tokens = min(stated, output_max)
    elif fields.get("ignore_eos") is True:
        output_tokens = output_max
    else:
        output_tokens = min(drawn_output_tokens(text), output_max)
    stream_options = fields.get("stream_options")
    return EngineCall(
        path=path,
        model=str(fields.get("model") or SERVED_MODEL),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        finish_reason="length" if output_tokens >= output_max else "stop",
        is_stream=fields.get("stream") is True,
        has_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
    )


class AnswerWriter:
    """Writes one answer; what does not change from token to token is rendered once."""

    __slots__ = ("_call", "_created", "_id", "_last", "_prefix", "_suffix")

    def __init__(self, call: EngineCall, answer_id: str) -> None:
        self._call = call
        self._id = answer_id
        self._created = int(time.time())
        place = {"delta": {"content": "\0"}} if call.is_chat else {"text": "\0"}
        choice = {"index": 0, **place, "logprobs": None, "finish_reason": None, "token_ids": None}
        prefix, _, suffix = self._event([choice]).partition(b"\\u0000")
        ending = b'"finish_reason":"%s","stop_reason":null' % call.finish_reason.encode("ascii")
        self._prefix = prefix
        self._suffix = suffix
        self._last = suffix.replace(b'"finish_reason":null', ending)

    def opening(self) -> bytes:
        """Return what precedes the first token: the role, for a chat."""
        if not self._call.is_chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def token(self, index: int) -> bytes:
        """Return the event of output token number ``index``."""
        is_last = index + 1 >= self._call.output_tokens
        word = answer_words(first=index, count=1)
        return b"".join((self._prefix, word, self._last if is_last else self._suffix))

    def closing(self) -> bytes:
        """Return what follows the last token."""
        if not self._call.has_usage:
            return DONE_EVENT
        return self._event([], usage=self._usage()) + DONE_EVENT

    def whole(self) -> bytes:
        """Return the answer as one body, for a request that is not streamed."""
        call = self._call
        text = answer_words(first=0, count=call.output_tokens).decode("ascii")
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if call.is_chat
            else {"text": text}
        )
        choice = {
            "index": 0,
            **said,
            "logprobs": None,
            "finish_reason": call.finish_reason,
            "stop_reason": None,
        }
        kind = "chat.completion" if call.is_chat else "text_completion"
        return compact({**self._head(kind), "choices": [choice], "usage": self._usage()})

    def _usage(self) -> dict[str, int]:
        call = self._call
        return {
            "prompt_tokens": call.prompt_tokens,
            "total_tokens": call.prompt_tokens + call.output_tokens,
            "completion_tokens": call.output_tokens,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._call.model,
        }

    def _event(
        self, choices: list[dict[str, Any]], *, usage: dict[str, int] | None = None
    ) -> bytes:
        kind = "chat.completion.chunk" if self._call.is_chat else "text_completion"
        chunk: dict[str, Any] = {**self._head(kind), "choices": choices}
        if usage is not None:
            chunk["usage"] = usage
        return b"data: " + compact(chunk) + b"\n\n"


def compact(value: dict[str, Any]) -> bytes:
    """Return JSON without blanks."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def json_object(body: bytes) -> dict[str, Any]:
    """Return a body's members.

    Raises:
        WireError: It is no JSON object.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError("the body is not JSON", kind="Bad Request") from None
    if not isinstance(fields, dict):
        raise WireError("the body is not a JSON object", kind="Bad Request")
    return fields


def _positive_int(fields: dict[str, Any], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"{key} must be an integer, got {type(value).__name__}", param=key)
    if value < 1:
        raise WireError(
            f"{key} must be at least 1, got {value}. (parameter={key}, value={value})", param=key
        )
    return value


def chat_messages(fields: dict[str, Any]) -> tuple[str, int]:
    """Return the text of ``messages`` and its tokens.

    Raises:
        WireError: There is none.
    """
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireError("messages must be a list of at least one message", param="messages")
    texts = [_message_text(message) for message in messages]
    return "\n".join(texts), chat_prompt_tokens(texts)


def _message_text(message: object) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise WireError("a message must be an object with a role", param="messages")
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    raise WireError("a message's content must be text or a list of parts", param="messages")


def plain_prompt(fields: dict[str, Any], *, name: str = "prompt") -> tuple[str, int]:
    """Return the text of a member that holds one text or one list of token ids, and its tokens.

    Raises:
        WireError: It holds neither.
    """
    prompt = fields.get(name)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt, max(text_tokens(prompt), 1)
    if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt):
        return repr(prompt), len(prompt)
    raise WireError(f"{name} must be one text or one list of token ids", param=name)


def _output_tokens_max(
    fields: dict[str, Any], prompt_tokens: int, *, context_tokens: int, maxima: tuple[str, ...]
) -> int:
    if prompt_tokens >= context_tokens:
        raise WireError(
            f"This model's maximum context length is {context_tokens} tokens. However, your "
            f"prompt contains at least {prompt_tokens} input tokens, which leaves no room for "
            "output. Please reduce the length of the input prompt. "
            f"(parameter=input_tokens, value={prompt_tokens})",
            param="input_tokens",
        )
    declared = {key: _positive_int(fields, key) for key in maxima}
    stated = {key: tokens for key, tokens in declared.items() if tokens is not None}
    if not stated:
        return context_tokens - prompt_tokens
    key, output_max = stated.popitem()
    if output_max > context_tokens:
        raise WireError(
            f"{key}={output_max} cannot be greater than max_model_len={context_tokens}. Please "
            f"request fewer output tokens. (parameter={key}, value={output_max})",
            param=key,
        )
    if prompt_tokens + output_max > context_tokens:
        raise WireError(
            f"This model's maximum context length is {context_tokens} tokens. However, you "
            f"requested {output_max} output tokens and your prompt contains at least "
            f"{prompt_tokens} input tokens, for a total of at least {prompt_tokens + output_max} "
            f"tokens. (parameter=input_tokens, value={prompt_tokens})",
            param="input_tokens",
        )
    return output_max
