"""How do the streams of the Responses API tell what they produced?

Rule: an event whose type ends in ``.delta`` counts as a chunk with output. The last event holds the
whole response, its status and usage; it alone is parsed. Earlier events echo the request, in which
a client may have written anything, so their words are not trusted.
"""

from __future__ import annotations

import re
from typing import Any

from tokenweir.http.paths.usage import UsageNames, json_object
from tokenweir.http.stream_account import DONE, StreamAccount

__all__ = ["CUT", "NAMES", "ResponseAccount"]

NAMES = UsageNames(
    prompt="input_tokens",
    output="output_tokens",
    cached=(("input_tokens_details", "cached_tokens"),),
)
CUT = re.compile(rb'"incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*"max_output_tokens"')

_DELTA = re.compile(rb'"type"\s*:\s*"response\.[a-z_.]+\.delta"')
_LAST = re.compile(rb'"type"\s*:\s*"response\.(?:completed|incomplete|failed|cancelled)"')
_ERROR = re.compile(rb'"type"\s*:\s*"error"|^data:\s*\{\s*"error"\s*:')
_FAILED = frozenset({"response.failed", "response.cancelled"})
_ENDED = frozenset({"response.completed", "response.incomplete"}) | _FAILED


class ResponseAccount(StreamAccount):
    """Counts one stream of response events."""

    def _line(self, line: bytes) -> bool:
        # Each plain ``in`` spares a slower expression on nearly every line.
        if b'"response"' in line:
            if _LAST.search(line):
                self._note_last(json_object(line[5:]) or {})
        elif b'.delta"' in line and _DELTA.search(line):
            self.chunks += 1
        elif b'"error"' in line and _ERROR.search(line):
            self.has_failed = True
        elif line.startswith(DONE):
            self.is_done = True
        return False

    def _note_last(self, event: dict[str, Any]) -> None:
        kind, response = event.get("type"), event.get("response")
        if kind not in _ENDED or not isinstance(response, dict):
            return
        self.is_done = self.is_finished = True
        self.has_failed = self.has_failed or kind in _FAILED
        details = response.get("incomplete_details")
        if isinstance(details, dict) and details.get("reason") == "max_output_tokens":
            self.is_cut = True
        self.usage = NAMES.read(response.get("usage")) or self.usage
