"""How do the streams of the Messages API tell what they produced?

Rule: a ``content_block_delta`` counts as a chunk with output. Usage comes in two events: the prompt
in ``message_start``, the output in ``message_delta``, where some engines repeat the prompt. What
the first says of output is only what there was by then, so that a stream which breaks off before
the second is counted by its chunks.
"""

from __future__ import annotations

import re
from typing import Any

from tokenweir.http.paths.usage import USAGE, UsageNames, json_object
from tokenweir.http.stream_account import StreamAccount

__all__ = ["CUT", "NAMES", "MessageAccount"]

NAMES = UsageNames(
    prompt="input_tokens",
    output="output_tokens",
    cached=(("cache_read_input_tokens",),),
    beside=("cache_creation_input_tokens", "cache_read_input_tokens"),
)
CUT = re.compile(rb'"stop_reason"\s*:\s*"(?:max_tokens|model_context_window_exceeded)"')

_ERROR = re.compile(rb'"type"\s*:\s*"error"|^data:\s*\{\s*"error"\s*:')
_CUT_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})


class MessageAccount(StreamAccount):
    """Counts one stream of message events."""

    def __init__(self, *, hides_usage: bool = False) -> None:
        """Start at the beginning of a body."""
        super().__init__(hides_usage=hides_usage)
        self._prompt_told: dict[str, Any] = {}

    def _line(self, line: bytes) -> bool:
        # Each plain ``in`` spares a slower expression on nearly every line.
        if b'"content_block_delta"' in line:
            self.chunks += 1
        elif b'"usage"' in line and USAGE.search(line):
            self._note_usage(json_object(line[5:]) or {})
        elif b'"message_stop"' in line:
            self.is_done = self.is_finished = True
        elif b'"error"' in line and _ERROR.search(line):
            self.has_failed = True
        return False

    def _note_usage(self, event: dict[str, Any]) -> None:
        message, delta, usage = event.get("message"), event.get("delta"), event.get("usage")
        if isinstance(message, dict):
            self._prompt_told = _stated(message.get("usage"))
            self.prompt_usage = NAMES.read(self._prompt_told)
            return
        if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
            self.is_finished = True
            self.is_cut = delta["stop_reason"] in _CUT_REASONS
        stated = _stated(usage)
        if NAMES.output in stated:
            # What the second says of the prompt replaces what the first said.
            self.usage = NAMES.read({**self._prompt_told, **stated}) or self.usage


def _stated(usage: object) -> dict[str, Any]:
    """Return the members of a usage object that state something."""
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if value is not None}
