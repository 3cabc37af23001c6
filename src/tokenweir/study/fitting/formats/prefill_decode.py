"""Curves of one engine: first token by prompt length, pace by context and KV tokens in use.

Model: ``isl_tokens, ttft_ms`` are prompts on an idle engine, through its HTTP server: a constant of
the curve stands for that. ``context_length_tokens, kv_usage_fraction, itl_ms,
decode_tokens_per_s_per_gpu`` are paces; requests that ran = tokens a second x pace (Little's law),
which is less than were sent where the engine had no more seats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenweir.core.units import NS_PER_MS
from tokenweir.study.fitting.curves import Curve, Measured, Reading, Step, prefill_steps
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import Row, read_table

__all__ = ["is_of", "read"]

_PREFILL = ("isl_tokens", "ttft_ms")
_DECODE = ("context_length_tokens", "kv_usage_fraction", "kv_tokens_in_use", "itl_ms")
_MS_PER_S = 1_000


def is_of(line: str) -> bool:
    """Tell by the header."""
    columns = set(line.split(","))
    return columns.issuperset(_PREFILL) or columns.issuperset(_DECODE)


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read one engine's curves."""
    first: list[Measured] = []
    decode: list[Measured] = []
    pools: list[int] = []
    for path in paths:
        for row in read_table(path).rows:
            if "ttft_ms" in row.values:
                first.append(_first_token(row, wanted))
            else:
                decode.append(_pace(row))
                pools.extend(_pool(row))
    curves = (
        *([Curve("first token", tuple(first), has_overhead=bool(decode))] if first else []),
        *([Curve("decode pace", tuple(decode))] if decode else []),
    )
    told = (("kv_tokens", max(pools)),) if pools else ()
    return Reading(curves, source=f"fitted to curves in {_names(paths)}", told=told)


def _first_token(row: Row, wanted: Wanted) -> Measured:
    prompt = int(row.positive("isl_tokens"))
    steps = prefill_steps(prompt, step_tokens_max=wanted.step_tokens_max)
    return Measured(row.positive("ttft_ms") * NS_PER_MS, steps)


def _pace(row: Row) -> Measured:
    pace_ms = row.positive("itl_ms")
    running = max(1.0, row.positive("decode_tokens_per_s_per_gpu") * pace_ms / _MS_PER_S)
    context = row.positive("context_length_tokens")
    return Measured(pace_ms * NS_PER_MS, (Step(running, running * context, running),))


def _pool(row: Row) -> Iterator[int]:
    # A fraction of one request is too short of digits to divide by.
    if row.number("kv_usage_fraction") > 0.01:
        yield round(row.positive("kv_tokens_in_use") / row.number("kv_usage_fraction"))


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
