"""What did a stream produce, and what of it may the client see?

Reads server-sent events as they pass, split anywhere; lines end in LF or CRLF. What a line means
is said by the form of the path, in ``_line``: JSON is parsed only where a line can hold a usage
object, all else is told by short searches.

Rule: in hiding mode whole lines are passed on, so that a line of usage alone can be left out; else
bytes pass as they come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tokenweir.core.request import Outcome, Usage

__all__ = ["DONE", "StreamAccount"]

# The last line of most streams.
DONE = (b"data: [DONE]", b"data:[DONE]")

# A longer line is no chunk of text: it passes, uncounted.
_LINE_BYTES_MAX = 1 << 20


class StreamAccount(ABC):
    """Counts one stream.

    Attributes:
        chunks: With output, so far.
        usage: As the upstream told it, the last one; None until then.
        prompt_usage: What it told before the answer, its output not counted yet; None until then.
        is_done: Whether the last event came.
        is_finished: Whether the model's own end, or its limit, came.
        is_cut: Whether it ended at its limit.
        has_failed: Whether the upstream sent an error in the stream.
    """

    def __init__(self, *, hides_usage: bool = False) -> None:
        """Start at the beginning of a body."""
        self.chunks = 0
        self.usage: Usage | None = None
        self.prompt_usage: Usage | None = None
        self.is_done = False
        self.is_finished = False
        self.is_cut = False
        self.has_failed = False
        self._hides_usage = hides_usage
        self._tail = b""
        self._is_skipping = False
        self._has_skipped = False
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
        if self.is_cut:
            return Outcome.LENGTH
        # A line that was too long to be read may have been the end.
        has_ended = self.is_finished or self.is_done or self._has_skipped
        return Outcome.FINISHED if has_ended else Outcome.ERROR

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
            self._is_skipping = self._has_skipped = True
            self._tail = b""
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

    @abstractmethod
    def _line(self, line: bytes) -> bool:
        """Count one data line; returns whether it holds usage and nothing else."""
