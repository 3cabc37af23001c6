"""What does an OpenAI request ask for, and which body is forwarded for it?

The body is parsed once, and only the members that decide are looked at. It is forwarded byte for
byte unless something has to be written into it: the route's output maximum where the client's is
missing or larger, and the wish for usage in a stream. A member that was absent is spliced in behind
the opening brace, so that even then the rest stays byte for byte; one that has to be replaced makes
the body be written anew. Wire names stop here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tokenweir.http.asgi import json_bytes
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["BadRequest", "Demand", "Endpoint", "ParsedBody", "Room", "parse_body", "shape"]

# Two of OpenAI's own bounds; without them one request could ask for any number of sequences.
SEQUENCES_MAX = 128
_MODEL_CHARS_MAX = 256
_OUTPUT_MEMBERS = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "completions": ("max_tokens",),
}


class Endpoint(Enum):
    """The two paths that are admitted; the value says how their body is read."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class BadRequest(Exception):
    """The body cannot be what the API asks for.

    Attributes:
        param: The member that is wrong, or None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A body that was read; its repr shows no text of the prompt.

    Attributes:
        raw: As it came.
        members: As JSON.
        endpoint: Whose body it is.
        model: The model's name, empty where none is named.
    """

    raw: bytes
    members: dict[str, Any]
    endpoint: Endpoint
    model: str

    def __repr__(self) -> str:
        """Show sizes only."""
        return f"ParsedBody({self.endpoint.value}, {len(self.raw)} bytes)"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for, after clamping.

    Attributes:
        size: Of the prompt.
        output_tokens_max: Of all sequences together.
        sequences: How many answers are generated.
        is_streamed: Whether the answer is an event stream.
        hides_usage: Whether usage was asked for by us alone, so that the client must not see it.
        body: What is forwarded.
        changes: What was written over, in the words of ``x-tokenweir-degraded``.
        is_lowered: Whether the client had asked for more output than it gets.
    """

    size: PromptSize
    output_tokens_max: int
    sequences: int
    is_streamed: bool
    hides_usage: bool
    body: bytes
    changes: tuple[str, ...]
    is_lowered: bool

    def __repr__(self) -> str:
        """Show sizes only."""
        return (
            f"Demand({self.size}, output_tokens_max {self.output_tokens_max}, "
            f"sequences {self.sequences}, {len(self.body)} bytes)"
        )


def parse_body(raw: bytes, endpoint: Endpoint) -> ParsedBody:
    """Parse a body and check what the policy relies on.

    Raises:
        BadRequest: It is not a JSON object, or one with a member that stands twice or a number that
            is none, or lacks the prompt, or a member has a wrong type.
    """
    try:
        members = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError):
        # Without the parser's own words: they quote the body.
        raise BadRequest("the body is not JSON") from None
    if not isinstance(members, dict):
        raise BadRequest("the body is not a JSON object")
    model = members.get("model")
    if model is None:
        model = ""
    if not isinstance(model, str) or len(model) > _MODEL_CHARS_MAX:
        raise BadRequest(
            f"model is not a string of up to {_MODEL_CHARS_MAX} characters", param="model"
        )
    if endpoint is Endpoint.CHAT:
        if not isinstance(members.get("messages"), list):
            raise BadRequest("messages is missing or not a list", param="messages")
    elif not isinstance(members.get("prompt"), (str, list)):
        raise BadRequest("prompt is missing, or neither a string nor a list", param="prompt")
    return ParsedBody(raw, members, endpoint, model)


def _no_constant(name: str) -> float:
    """Refuse NaN and Infinity, which are not JSON."""
    raise BadRequest(f"the body is not JSON: {name} is no number")


def _finite(text: str) -> float:
    """Read a number; one that overflows would be written anew as what is not JSON."""
    value = float(text)
    if math.isinf(value):
        raise BadRequest("the body has a number that is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose members stand once: of two, an engine may read the other one."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BadRequest("the body has an object in which a member stands twice")
    return members


@dataclass(frozen=True, slots=True)
class Room:
    """What an engine's context leaves for output beside a prompt, in tokens; may be negative.

    Attributes:
        expected: By the estimate of the prompt.
        safe: Also where that estimate is a quarter too low.
    """

    expected: int
    safe: int

    @classmethod
    def beside(cls, prompt_tokens: int, *, context_tokens: int) -> Room:
        """Return the room beside a prompt that was estimated."""
        expected = context_tokens - prompt_tokens
        return cls(expected, expected - prompt_tokens // 4)


def shape(
    parsed: ParsedBody,
    *,
    output_tokens_max: int,
    room_beside: Callable[[PromptSize], Room | None] = lambda size: None,
) -> Demand:
    """Return what a parsed body asks for under a route's output maximum.

    Args:
        parsed: The body.
        output_tokens_max: Of the route, per answer, 1 or more.
        room_beside: Tells what the engine's context leaves; None where it is not known. Engines
            refuse a maximum that does not fit, so none is written that might not.

    Raises:
        BadRequest: A number, ``stream`` or ``stream_options`` has a wrong type or range.
    """
    members = parsed.members
    is_streamed = _flag(members, "stream")
    # Members to write: into an absent place, or over what the client sent.
    additions: dict[str, Any] = {}
    replacements: dict[str, Any] = {}
    changes: list[str] = []
    declared: list[int] = []
    is_lowered = False
    size, prompts = _prompt_size(parsed)
    room = room_beside(size)
    ceiling = output_tokens_max if room is None else max(1, min(output_tokens_max, room.safe))
    for name in _OUTPUT_MEMBERS[parsed.endpoint.value]:
        value = _count(members, name)
        if value is None:
            continue
        if value > output_tokens_max:
            value = replacements[name] = ceiling
            changes.append(f"{name}={value}")
            is_lowered = True
        declared.append(value)
    if not declared and room is not None and room.safe < output_tokens_max:
        # Left to the engine, whose context is the tighter bound and which counts exactly.
        declared.append(max(1, min(output_tokens_max, room.expected)))
    elif not declared:
        declared.append(output_tokens_max)
        target = replacements if "max_tokens" in members else additions
        target["max_tokens"] = output_tokens_max
        changes.append(f"max_tokens={output_tokens_max}")
    hides_usage = is_streamed and _ask_for_usage(members, additions, replacements=replacements)
    sequences = max(_count(members, "n") or 1, _count(members, "best_of") or 1) * prompts
    if sequences > SEQUENCES_MAX:
        raise BadRequest(
            f"n, best_of and prompts ask for {sequences} sequences, allowed: {SEQUENCES_MAX}",
            param="n",
        )
    return Demand(
        size=size,
        output_tokens_max=max(declared) * sequences,
        sequences=sequences,
        is_streamed=is_streamed,
        hides_usage=hides_usage,
        body=_written(parsed, additions, replacements=replacements),
        changes=tuple(changes),
        is_lowered=is_lowered,
    )


def _written(
    parsed: ParsedBody, additions: dict[str, Any], *, replacements: dict[str, Any]
) -> bytes:
    if replacements:
        return json_bytes({**parsed.members, **additions, **replacements})
    if not additions:
        return parsed.raw
    # An object that has a prompt has a member, so a comma is due behind what is spliced in.
    at = parsed.raw.index(b"{") + 1
    spliced = json_bytes(additions)[1:-1]
    return b"%b%b,%b" % (parsed.raw[:at], spliced, parsed.raw[at:])


def _ask_for_usage(
    members: dict[str, Any], additions: dict[str, Any], *, replacements: dict[str, Any]
) -> bool:
    """Write the wish for usage into a stream's body; returns whether it is ours alone."""
    options = members.get("stream_options")
    if options is None:
        target = replacements if "stream_options" in members else additions
        target["stream_options"] = {"include_usage": True}
        return True
    if not isinstance(options, dict):
        raise BadRequest("stream_options is not an object", param="stream_options")
    if options.get("include_usage") is True:
        return False
    replacements["stream_options"] = {**options, "include_usage": True}
    return True


def _flag(members: dict[str, Any], name: str) -> bool:
    value = members.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        # An engine may read 1 or "true" as true, and then stream what we would take for a body.
        raise BadRequest(f"{name} is not a boolean", param=name)
    return value


def _count(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{name} is not an integer of 1 or more", param=name)
    return value


# --- the size of a prompt -----------------------------------------------------------------------


def _prompt_size(parsed: ParsedBody) -> tuple[PromptSize, int]:
    """Return the prompt's size, and how many prompts there are."""
    members = parsed.members
    if parsed.endpoint is Endpoint.COMPLETIONS:
        return _completions_size(members["prompt"])
    text_bytes, media = 0, 0
    messages = members["messages"]
    for message in messages:
        if isinstance(message, dict):
            more_bytes, more_media = _message_size(message)
            text_bytes += more_bytes
            media += more_media
    for name in ("tools", "functions"):
        if members.get(name):
            # The engine writes them into the prompt as JSON.
            text_bytes += len(json.dumps(members[name]))
    return PromptSize(text_bytes, messages=len(messages), media=media), 1


def _message_size(message: dict[str, Any]) -> tuple[int, int]:
    """Return UTF-8 bytes of a message's texts, and its parts that are not text."""
    content = message.get("content")
    text_bytes, media = 0, 0
    if isinstance(content, str):
        text_bytes = _utf8_bytes(content)
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                text_bytes += _utf8_bytes(text)
            else:
                media += 1
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            text_bytes += len(json.dumps(message[name]))
    return text_bytes, media


def _completions_size(prompt: str | list[Any]) -> tuple[PromptSize, int]:
    """Read a string, a list of strings, a list of token ids, or a list of lists of token ids."""
    if isinstance(prompt, str):
        return PromptSize(_utf8_bytes(prompt), messages=0), 1
    if not prompt:
        raise BadRequest("prompt is an empty list", param="prompt")
    if all(type(item) is int for item in prompt):
        return PromptSize(0, exact_tokens=len(prompt)), 1
    if all(isinstance(item, str) for item in prompt):
        return PromptSize(sum(map(_utf8_bytes, prompt))), len(prompt)
    if all(isinstance(item, list) for item in prompt):
        if not all(type(token) is int for item in prompt for token in item):
            raise BadRequest("prompt has a list that is not of token ids", param="prompt")
        return PromptSize(0, exact_tokens=sum(map(len, prompt))), len(prompt)
    raise BadRequest("prompt mixes strings, token ids and lists", param="prompt")


def _utf8_bytes(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
