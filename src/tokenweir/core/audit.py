"""Which requests were refused, and why?

Keeps the last refusals and counts all of them by reason and prompt-size bucket. Sizes and codes
only, no text.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request
from tokenweir.core.units import Nanos

__all__ = ["PROMPT_BUCKETS", "Refusal", "RefusalAudit", "prompt_bucket"]

# Upper bounds in prompt tokens, with their labels; the last bucket is open.
PROMPT_BUCKETS: tuple[tuple[int, str], ...] = (
    (256, "<=256"),
    (1_024, "<=1k"),
    (4_096, "<=4k"),
    (16_384, "<=16k"),
)
_LARGEST_LABEL = ">16k"


def prompt_bucket(prompt_tokens: int) -> str:
    """Return the label of the prompt-size bucket."""
    for bound, label in PROMPT_BUCKETS:
        if prompt_tokens <= bound:
            return label
    return _LARGEST_LABEL


@dataclass(frozen=True, slots=True)
class Refusal:
    """One audit row.

    Attributes:
        refused_ns: Monotonic time.
        request_id: Which request.
        tenant: Whose.
        prompt_tokens: Size of its prompt.
        output_tokens_max: Its declared maximum.
        occupied_tokens: KV tokens in use in the pool at that time.
        reason: Why.
        is_enforced: False in observe mode, where it was admitted all the same.
    """

    refused_ns: Nanos
    request_id: str
    tenant: str
    prompt_tokens: int
    output_tokens_max: int
    occupied_tokens: int
    reason: ReasonCode
    is_enforced: bool


class RefusalAudit:
    """The last refusals, and counts of all."""

    def __init__(self, *, rows_max: int = 1_000) -> None:
        """Start empty; the oldest of ``rows_max`` rows makes room for a new one."""
        # Fields of ``Refusal``, which is made when somebody looks: refusing has to be cheap.
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=rows_max)
        self.counts: Counter[tuple[ReasonCode, str]] = Counter()

    def note(
        self,
        request: Request,
        reason: ReasonCode,
        *,
        occupied_tokens: int,
        is_enforced: bool,
        now_ns: Nanos,
    ) -> None:
        """Record one refusal."""
        self._rows.append((
            now_ns,
            request.request_id,
            request.tenant,
            request.prompt_tokens,
            request.output_tokens_max,
            occupied_tokens,
            reason,
            is_enforced,
        ))
        self.counts[reason, prompt_bucket(request.prompt_tokens)] += 1

    def rows(self) -> tuple[Refusal, ...]:
        """Return the kept rows, oldest first."""
        return tuple(Refusal(*fields) for fields in self._rows)
