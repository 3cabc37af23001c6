"""What did a stream produce, and what of it may the client see?

Reads server-sent events as they pass, split anywhere. JSON is parsed only where a line can hold a
usage object; all else is told by short searches. Lines end in LF or CRLF.

Rule: a ``data`` line with an object counts as a chunk with output, unless it is the usage chunk, an
opening chunk with a role and no content, or a closing one with an empty delta. In hiding mode whole
lines are passed on, so that the usage chunk can be left out; else bytes pass as they come.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tokenweir.core.request import Outcome, Usage

__all__ = ["StreamAccount", "read_answer", "usage_of"]

_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
_ERROR = re.compile(rb'^data:\s*\{\s*"error"\s*:|"error"\s*:\s*\{')
_NO_CONTENT = re.compile(rb'"content"\s*:\s*(?:""|null)|"delta"\s*:\s*\{\s*"role"\s*:\s*"\w+"\s*\}')
_EMPTY_DELTA = re.compile(rb'"delta"\s*:\s*\{\s*\}')
_DONE = (b"data: [DONE]", b"data:[DONE]")

_DECODER = json.JSONDecoder()

# A longer line is no chunk of text: it passes, uncounted.
_LINE_BYTES_MAX = 1 << 20


class StreamAccount:
    """Counts one stream.

    Attributes:
        chunks: With output, so far.
        usage: As the upstream told it, the last one; None until then.
        is_done: Whether ``[DONE]`` came.
        has_failed: Whether the upstream sent an error in the stream.
    """

    def __init__(self, *, hides_usage: bool) -> None:
        """Start at the beginning of a body."""
        self.chunks = 0
        self.usage: Usage | None = None
        self.is_done = False
        self.has_failed = False
        self._finish_reason: bytes | None = None
        self._hides_usage = hides_usage
        self._tail = b""
        self._is_skipping = False
        self._drops_blank = False

    @property
    def is_inside_line(self) -> bool:
        """Whether the last byte seen was not the end of a line."""
        return bool(self._tail) or self._is_skipping

    @property
    def outcome(self) -> Outcome:
        """How the stream ended, as far as it has told."""
        if self.has_failed:
            return Outcome.ERROR
        if self._finish_reason == b"length":
            return Outcome.LENGTH
        return Outcome.FINISHED if self._finish_reason or self.is_done else Outcome.ERROR

    def feed(self, data: bytes) -> bytes:
        """Take in bytes of the body, and return what to pass on now, perhaps nothing."""
        tail = self._tail
        if self._is_skipping:
            return self._skip(data)
        whole = tail + data if tail else data
        cut = whole.rfind(b"\n") + 1
        lines = whole[:cut] if cut < len(whole) else whole
        self._tail = whole[cut:]
        if len(self._tail) > _LINE_BYTES_MAX:
            self._is_skipping, self._tail = True, b""
            passed = self._count(lines)
            return passed + whole[cut:] if self._hides_usage else data
        if not self._hides_usage:
            self._count(lines)
            return data
        return self._count(lines)

    def flush(self) -> bytes:
        """Return what was held back, at the end of the body."""
        tail, self._tail = self._tail, b""
        if tail:
            self._line(tail)
        return tail if self._hides_usage else b""

    def _skip(self, data: bytes) -> bytes:
        cut = data.find(b"\n") + 1
        if cut == 0:
            return data
        self._is_skipping = False
        rest = self.feed(data[cut:])
        return data[:cut] + rest

    def _count(self, lines: bytes) -> bytes:
        """Count whole lines; returns them without those that are hidden."""
        if not self._hides_usage or (not self._drops_blank and b'"usage"' not in lines):
            for line in lines.split(b"\n"):
                if line.startswith(b"data:"):
                    self._line(line)
            return lines
        kept = []
        for line in lines.splitlines(keepends=True):
            is_blank = not line.strip()
            if is_blank and self._drops_blank:
                self._drops_blank = False
                continue
            self._drops_blank = False
            if line.startswith(b"data:") and self._line(line):
                self._drops_blank = True
                continue
            kept.append(line)
        return b"".join(kept)

    def _line(self, line: bytes) -> bool:
        """Count one data line; returns whether it holds usage and nothing else."""
        # Each plain ``in`` spares a slower expression on nearly every line.
        if line.startswith(_DONE):
            self.is_done = True
            return False
        if b'"usage"' in line and _USAGE.search(line):
            chunk = _json_object(line[5:])
            if chunk is not None and isinstance(chunk.get("usage"), dict):
                self.usage = usage_of(chunk) or self.usage
                if not chunk.get("choices"):
                    return "choices" in chunk
        finish = None
        if b'"finish_reason":null' not in line:
            finish = _FINISH.search(line)
        if finish is not None:
            self._finish_reason = finish[1]
            if finish[1] == b"error":
                self.has_failed = True
            if _EMPTY_DELTA.search(line) or b'"choices"' not in line:
                return False
        elif b'"error"' in line and _ERROR.search(line):
            self.has_failed = True
            return False
        elif b'"role"' in line and _NO_CONTENT.search(line) and b'"tool_calls"' not in line:
            return False
        if b'"choices"' in line and b'"choices":[]' not in line:
            self.chunks += 1
        return False


def read_answer(body: bytes) -> tuple[Usage | None, Outcome]:
    """Return usage and outcome of an answer that was not streamed.

    Only the last usage object is parsed: inside a string its quotes would be escaped, so it is one
    of the answer's own members, and a long answer need not be read for it.
    """
    usage = None
    for match in _USAGE.finditer(body):
        usage = match
    is_cut = any(reason == b"length" for reason in _FINISH.findall(body))
    outcome = Outcome.LENGTH if is_cut else Outcome.FINISHED
    if usage is None:
        return None, outcome
    try:
        stated, _ = _DECODER.raw_decode(body[usage.end() - 1 :].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None, outcome
    return usage_of({"usage": stated}), outcome


def usage_of(body: dict[str, Any]) -> Usage | None:
    """Return the usage that a body or chunk states, or None where it states none that counts."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt_tokens = _token_count(usage.get("prompt_tokens"))
    # Embeddings and refused prompts have no completion_tokens.
    output_tokens = _token_count(usage.get("completion_tokens") or 0)
    if prompt_tokens is None or output_tokens is None:
        return None
    return Usage(prompt_tokens, output_tokens)


def _token_count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
