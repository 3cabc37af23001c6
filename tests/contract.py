"""Which fields does every row of figures have, whatever command prints it?"""

from __future__ import annotations

__all__ = ["ROW_FIGURES"]

ROW_FIGURES = frozenset({
    "arrivals",
    "retries",
    "refused",
    "completed",
    "goodput_per_attempt",
    "goodput_unique",
    "goodput_tokens",
    "ttft_p50_s",
    "ttft_p99_s",
    "tokens_per_s",
    "preemptions",
})
