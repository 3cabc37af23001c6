"""An engine's own /metrics pages, one after the other: what ran between two of them, how fast?

Model: between two pages S steps worked on N tokens, G of them decode (``iteration_tokens``,
``generation_tokens``), so that G / S requests decoded in a step; R requests got their first token,
which says how the N - G tokens of prefill are spread over the steps; their context is the pool's
use. The mean gap between tokens (``inter_token_latency``) is the mean step. Pages need no times,
only their order: a file a page, by name, or one file with ``# EOF`` after each page.
Rule: left out are intervals with few steps, with a preemption (whose pause is in the gaps), and
across a restart.
Trade-off: an engine that always runs the same load tells one point, and one point fits everything;
a history should see the engine both idle and full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tokenweir.adapters.vllm import VllmPage, read_page
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.study.fitting.curves import Curve, Measured, Reading, serving_steps
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import read_text

__all__ = ["is_of", "read"]

_END = "# EOF"
_STEPS_MIN = 20
_POINTS_MIN = 3

_STEPS = "vllm:iteration_tokens_total_count"
_TOKENS = "vllm:iteration_tokens_total_sum"
_DECODED = "vllm:generation_tokens_total"
_FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
_GAPS = "vllm:inter_token_latency_seconds_count"
_GAPS_S = "vllm:inter_token_latency_seconds_sum"
_COUNTERS = (_STEPS, _TOKENS, _DECODED, _FIRST_TOKENS, _GAPS, _GAPS_S)
# As the gaps were called before.
_OLDER = ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds")
_SAMPLE = re.compile(
    rf"^({'|'.join(_COUNTERS)})(?:\{{[^\n]*\}})?[ \t]+([0-9.eE+]+)(?:[ \t][^\n]*)?$", re.MULTILINE
)


def is_of(line: str) -> bool:
    """Tell by the first line: a comment of the text format, or a sample."""
    return line.startswith(("# HELP ", "# TYPE ", "vllm:"))


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read the pages of one engine.

    Raises:
        ConfigError: They hold too few usable intervals.
    """
    pages = [(_counters(text), read_page(text)) for path in paths for text in _pages(path)]
    points = [
        point
        for before, after in pairwise(pages)
        if (point := _measured(before, after, wanted=wanted)) is not None
    ]
    if len(points) < _POINTS_MIN:
        raise ConfigError(
            f"{len(pages)} pages hold {len(points)} intervals that can be used (with steps, "
            f"decoding, and no preemption), allowed: {_POINTS_MIN} or more"
        )
    sizes = {page.kv_tokens for _, page in pages if page.kv_tokens}
    return Reading(
        (Curve("pace between pages", tuple(points)),),
        source=f"fitted to {len(points)} intervals between {len(pages)} /metrics pages",
        told=(("kv_tokens", max(sizes)),) if sizes else (),
    )


def _pages(path: Path) -> Iterator[str]:
    for text in read_text(path).split(_END):
        if text.strip():
            yield text


def _counters(text: str) -> dict[str, float]:
    """Return what is counted, over all engines of the page."""
    counters = dict.fromkeys(_COUNTERS, 0.0)
    if f"\n{_GAPS}" not in text:
        text = text.replace(*_OLDER)
    for name, value in _SAMPLE.findall(text):
        counters[name] += float(value)
    return counters


def _measured(
    before: tuple[dict[str, float], VllmPage],
    after: tuple[dict[str, float], VllmPage],
    *,
    wanted: Wanted,
) -> Measured | None:
    grown = {name: after[0][name] - before[0][name] for name in _COUNTERS}
    steps = grown[_STEPS]
    if min(grown.values()) < 0 or steps < _STEPS_MIN or grown[_GAPS] <= 0 or grown[_GAPS_S] <= 0:
        return None
    if before[1].preemptions_total != after[1].preemptions_total:
        return None
    used = [page.used_fraction for page in (before[1], after[1])]
    pool = after[1].kv_tokens or wanted.kv_tokens
    context = pool * sum(fraction or 0.0 for fraction in used) / len(used)
    decoding = grown[_GAPS] / steps
    prefill = max(0.0, grown[_TOKENS] - grown[_DECODED]) / steps
    prompt = prefill * steps / max(1.0, grown[_FIRST_TOKENS])
    chunks = grown[_FIRST_TOKENS] * max(1.0, -(-prompt // wanted.step_tokens_max))
    kinds = serving_steps(
        decoding=decoding,
        kv_tokens=context,
        prefill_tokens=prefill,
        attention=prefill * prompt / 2,
        prefill_share=min(1.0, max(chunks, 1.0) / steps),
    )
    return Measured(grown[_GAPS_S] / grown[_GAPS] * NS_PER_S, kinds)
