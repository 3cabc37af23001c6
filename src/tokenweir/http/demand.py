"""What does a request ask for, and which body is forwarded for it?

The body is parsed once, and only the members that its path's row names are looked at. It is
forwarded byte for byte unless something has to be written into it: the route's output maximum where
the client's is missing or larger, and the wish for usage in a stream. A member that was absent is
spliced in behind the opening brace, so that even then the rest stays byte for byte; one that has to
be replaced makes the body be written anew. Wire names stop here and in ``paths``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tokenweir.http.asgi import json_bytes
from tokenweir.http.paths.form import SEQUENCES_MAX, BadRequest, PathForm, Prompt
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["BadRequest", "Demand", "ParsedBody", "Room", "parse_body", "shape"]

_MODEL_CHARS_MAX = 256
_TOO_DEEP = "the body is nested too deeply"


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A body that was read; its repr shows no text of the prompt.

    Attributes:
        raw: As it came.
        members: As JSON.
        form: Of the path it came by.
        model: The model's name, empty where none is named.
        prompt: What was read of its prompt.
    """

    raw: bytes
    members: dict[str, Any]
    form: PathForm
    model: str
    prompt: Prompt

    def __repr__(self) -> str:
        """Show sizes only."""
        return f"ParsedBody({self.form.path}, {len(self.raw)} bytes)"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for, after clamping.

    Attributes:
        form: Of the path it came by.
        size: Of the prompt.
        output_tokens_max: Of all sequences together.
        sequences: How many answers are generated.
        is_streamed: Whether the answer is an event stream.
        hides_usage: Whether usage was asked for by us alone, so that the client must not see it.
        body: What is forwarded.
        changes: What was written over, in the words of ``x-tokenweir-degraded``.
        is_lowered: Whether the client had asked for more output than it gets.
    """

    form: PathForm
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


def parse_body(raw: bytes, form: PathForm) -> ParsedBody:
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
    try:
        prompt = form.prompt(members)
    except RecursionError:
        raise BadRequest(_TOO_DEEP) from None
    return ParsedBody(raw, members, form, model, prompt)


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


@dataclass(slots=True)
class _Writing:
    """Members to write: into an absent place, or over what the client sent."""

    additions: dict[str, Any] = field(default_factory=dict)
    replacements: dict[str, Any] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    is_lowered: bool = False

    def put(self, members: dict[str, Any], name: str, *, value: Any) -> None:
        """Write a member, whether it is there or not."""
        (self.replacements if name in members else self.additions)[name] = value

    def body(self, parsed: ParsedBody) -> bytes:
        """Return what is forwarded."""
        if self.replacements:
            try:
                return json_bytes({**parsed.members, **self.additions, **self.replacements})
            except RecursionError:
                raise BadRequest(_TOO_DEEP) from None
        if not self.additions:
            return parsed.raw
        # An object that has a prompt has a member, so a comma is due behind what is spliced in.
        at = parsed.raw.index(b"{") + 1
        spliced = json_bytes(self.additions)[1:-1]
        return b"%b%b,%b" % (parsed.raw[:at], spliced, parsed.raw[at:])


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
    form, size, members = parsed.form, parsed.prompt.size, parsed.members
    writing = _Writing()
    is_streamed = form.is_streamable and _flag(members, "stream")
    declared = 1
    if form.output_members:
        room = room_beside(size)
        declared = _declared(parsed, writing, output_tokens_max=output_tokens_max, room=room)
    hides_usage = is_streamed and form.asks_usage and _ask_for_usage(members, writing)
    sequences = _sequences(parsed)
    return Demand(
        form=form,
        size=size,
        output_tokens_max=declared * sequences,
        sequences=sequences,
        is_streamed=is_streamed,
        hides_usage=hides_usage,
        body=writing.body(parsed),
        changes=tuple(writing.changes),
        is_lowered=writing.is_lowered,
    )


def _declared(
    parsed: ParsedBody, writing: _Writing, *, output_tokens_max: int, room: Room | None
) -> int:
    """Return the output maximum of one answer, and write what the route demands."""
    members, names = parsed.members, parsed.form.output_members
    ceiling = output_tokens_max if room is None else max(1, min(output_tokens_max, room.safe))
    declared: list[int] = []
    for name in names:
        value = _count(members, name)
        if value is None:
            continue
        if value > output_tokens_max:
            value = writing.replacements[name] = ceiling
            writing.changes.append(f"{name}={value}")
            writing.is_lowered = True
        declared.append(value)
    if declared:
        return max(declared)
    if room is not None and room.safe < output_tokens_max:
        # Left to the engine, whose context is the tighter bound and which counts exactly.
        return max(1, min(output_tokens_max, room.expected))
    writing.put(members, names[0], value=output_tokens_max)
    writing.changes.append(f"{names[0]}={output_tokens_max}")
    return output_tokens_max


def _sequences(parsed: ParsedBody) -> int:
    """Return how many answers are generated."""
    counts = [_count(parsed.members, name) or 1 for name in parsed.form.count_members]
    sequences = max(counts, default=1) * parsed.prompt.prompts
    if sequences > SEQUENCES_MAX:
        raise BadRequest(
            f"n, best_of and prompts ask for {sequences} sequences, allowed: {SEQUENCES_MAX}",
            param="n",
        )
    return sequences


def _ask_for_usage(members: dict[str, Any], writing: _Writing) -> bool:
    """Write the wish for usage into a stream's body; returns whether it is ours alone."""
    options = members.get("stream_options")
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options is not an object", param="stream_options")
    if options.get("include_usage") is True:
        return False
    writing.put(members, "stream_options", value={**options, "include_usage": True})
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
