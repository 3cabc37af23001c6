"""How do the streams of chat and text completions tell what they produced?

Rule: a ``data`` line with an object counts as a chunk with output, unless it is the usage chunk, an
opening chunk with a role and no content, or a closing one with an empty delta. Reasoning is output
like any other, also of providers that repeat the role beside it.
"""

from __future__ import annotations

import re

from tokenweir.http.paths.usage import USAGE, UsageNames, json_object
from tokenweir.http.stream_account import DONE, StreamAccount

__all__ = ["CUT", "NAMES", "ChunkAccount"]

NAMES = UsageNames(
    prompt="prompt_tokens",
    output="completion_tokens",
    # The second is DeepSeek's own.
    cached=(("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",)),
)
CUT = re.compile(rb'"finish_reason"\s*:\s*"length"')

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
_ERROR = re.compile(rb'^data:\s*\{\s*"error"\s*:|"error"\s*:\s*\{')
_NO_CONTENT = re.compile(rb'"content"\s*:\s*(?:""|null)|"delta"\s*:\s*\{\s*"role"\s*:\s*"\w+"\s*\}')
_OTHER_OUTPUT = re.compile(
    rb'"tool_calls"\s*:\s*\[|"(?:reasoning(?:_content)?|refusal)"\s*:\s*"[^"]'
)
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_EMPTY_DELTA = re.compile(rb'"delta"\s*:\s*\{\s*\}')


class ChunkAccount(StreamAccount):
    """Counts one stream of chunks."""

    def _line(self, line: bytes) -> bool:
        # Each plain ``in`` spares a slower expression on nearly every line.
        if line.startswith(DONE):
            self.is_done = True
            return False
        if b'"usage"' in line and USAGE.search(line):
            chunk = json_object(line[5:])
            if chunk is not None and isinstance(chunk.get("usage"), dict):
                self.usage = NAMES.read(chunk["usage"]) or self.usage
                if not chunk.get("choices"):
                    return "choices" in chunk
        finish = None
        if b'"finish_reason":null' not in line:
            finish = _FINISH.search(line)
        if finish is not None:
            self._note_finish(finish[1])
            if _EMPTY_DELTA.search(line) or b'"choices"' not in line:
                return False
        elif b'"error"' in line and _ERROR.search(line):
            self.has_failed = True
            return False
        if b'"role"' in line and _NO_CONTENT.search(line) and not _OTHER_OUTPUT.search(line):
            return False
        if b'"choices"' in line and (b"[]" not in line or not _NO_CHOICES.search(line)):
            self.chunks += 1
        return False

    def _note_finish(self, reason: bytes) -> None:
        self.is_finished = True
        if reason == b"length":
            # Of several answers one that was cut is enough: their lengths are one sum.
            self.is_cut = True
        elif reason == b"error":
            self.has_failed = True
