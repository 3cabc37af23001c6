"""How does an answer name the tokens that it used?

Model: p = prompt tokens, o = output tokens, c = of the prompt, what the engine had in its cache.
Some count cached tokens within the prompt, some beside it; p is always all of the prompt, c at most
p. Who tells nothing of c may have no cache or may not say so: c is None, not 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenweir.core.request import Outcome, Usage

__all__ = ["USAGE", "UsageNames", "json_object", "read_answer"]

# Inside a string its quotes would be escaped: this is a member, never said by a model.
USAGE = re.compile(rb'"usage"\s*:\s*\{')

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class UsageNames:
    """The names in a usage object.

    Attributes:
        prompt: Prompt tokens.
        output: Output tokens; absent where nothing is generated.
        cached: Where cached tokens may stand, the first that does counts; each a way of names.
        beside: Tokens of the prompt that ``prompt`` does not count.
    """

    prompt: str
    output: str
    cached: tuple[tuple[str, ...], ...]
    beside: tuple[str, ...] = ()

    def read(self, usage: object) -> Usage | None:
        """Return what a usage object states, or None where it states nothing that counts."""
        if not isinstance(usage, dict):
            return None
        prompt_tokens = _token_count(usage.get(self.prompt))
        output_tokens = _token_count(usage.get(self.output) or 0)
        if prompt_tokens is None or output_tokens is None:
            return None
        for name in self.beside:
            prompt_tokens += _token_count(usage.get(name)) or 0
        cached_tokens = self._cached_tokens(usage)
        if cached_tokens is not None:
            cached_tokens = min(cached_tokens, prompt_tokens)
        return Usage(prompt_tokens, output_tokens, cached_tokens)

    def _cached_tokens(self, usage: Mapping[str, Any]) -> int | None:
        for way in self.cached:
            value: object = usage
            for name in way:
                value = value.get(name) if isinstance(value, dict) else None
            count = _token_count(value)
            if count is not None:
                return count
        return None


def read_answer(
    body: bytes | bytearray, *, names: UsageNames, cut: re.Pattern[bytes]
) -> tuple[Usage | None, Outcome]:
    """Return usage and outcome of an answer that was not streamed.

    Only the last usage object is parsed: what comes before it may be an echo of the request, and a
    long answer need not be read for it.
    """
    outcome = Outcome.LENGTH if cut.search(body) else Outcome.FINISHED
    at = body.rfind(b'"usage"')
    while at >= 0:
        match = USAGE.match(body, at)
        if match is not None:
            return names.read(_decoded(body[match.end() - 1 :])), outcome
        at = body.rfind(b'"usage"', 0, at)
    return None, outcome


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object, or None where the text is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _decoded(text: bytes | bytearray) -> object:
    """Return the value that a text begins with, None where it is no JSON."""
    try:
        value, _ = _DECODER.raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value


def _token_count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
