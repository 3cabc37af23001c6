"""Each request that an engine served: when it came, its first token and its end.

Model: ``arrival_s, prompt_tokens, output_tokens, first_token_latency_s, request_latency_s``, the
last two negative where it was refused. Between first token and end a request takes part in every
step, so that its mean gap is the mean step of that time. What else was in those steps is told by
the others: who decoded meanwhile, with how much context, and whose prompts were read, since each
first token stands for one prompt.
Rule: requests are taken to produce at an even pace. Left out is who produced few tokens, whose mean
gap is one or two steps that happened to be long or short.
Trade-off: first tokens themselves hold waiting, so that they are not fitted: what a prompt costs is
told by how much it slows those that decode beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.study.fitting.curves import Curve, Measured, Reading, serving_steps
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.least_deviation import Floats
from tokenweir.study.fitting.rows import Row, chosen, read_table

__all__ = ["is_of", "read"]

_COLUMNS = (
    *("arrival_s", "prompt_tokens", "output_tokens"),
    *("first_token_latency_s", "request_latency_s"),
)
_RUN = ("policy",)
_STEPS_MIN = 20
_POINTS_MIN = 10
# Each is compared with each.
_ROWS_MAX = 10_000


def is_of(line: str) -> bool:
    """Tell by the header."""
    return set(line.split(",")).issuperset(_COLUMNS)


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read the requests of one run.

    Raises:
        ConfigError: There are too few or too many, or one ends before its first token.
    """
    if len(paths) > 1:
        raise ConfigError(f"{len(paths)} files of served requests, allowed: one, of one run")
    rows = chosen(read_table(paths[0]).rows, wanted.where, keys=_RUN)
    served = [row for row in rows if row.number("first_token_latency_s") >= 0]
    if len(served) > _ROWS_MAX:
        raise ConfigError(
            f"{paths[0]}: {len(served):,} served requests are not allowed, allowed: up to "
            f"{_ROWS_MAX:,}"
        )
    points = _paces(served)
    if len(points) < _POINTS_MIN:
        raise ConfigError(
            f"{paths[0]}: {len(points)} of {len(rows):,} requests were served and produced more "
            f"than {_STEPS_MIN} tokens, allowed: {_POINTS_MIN} or more"
        )
    picked = ", ".join(f"{column} {value}" for column, value in wanted.where)
    return Reading(
        (Curve("pace of served requests", points),),
        source=f"fitted to {len(points):,} served requests in {paths[0].name}"
        + (f", {picked}" if picked else ""),
    )


def _paces(rows: Sequence[Row]) -> tuple[Measured, ...]:
    columns = np.array([_times(row) for row in rows], dtype=np.float64).reshape(-1, 4)
    return tuple(
        _pace(columns, number)
        for number, (_, steps, first_s, end_s) in enumerate(columns)
        if steps > _STEPS_MIN and end_s > first_s
    )


def _times(row: Row) -> tuple[float, float, float, float]:
    """Return prompt tokens, tokens after the first, and when first token and end came."""
    arrival_s, first_s = row.number("arrival_s"), row.number("first_token_latency_s")
    end_s = row.number("request_latency_s")
    if end_s < first_s:
        raise ConfigError(
            f"{row.where}: request_latency_s {end_s:g} is not allowed, allowed: "
            f"first_token_latency_s {first_s:g} or more"
        )
    output = row.positive("output_tokens")
    return row.positive("prompt_tokens"), output - 1, arrival_s + first_s, arrival_s + end_s


def _pace(columns: Floats, number: int) -> Measured:
    prompts, produced, firsts, ends = columns.T
    steps, first_s, end_s = columns[number, 1:]
    span_s = end_s - first_s
    begin = np.maximum(firsts, first_s)
    together_s = np.maximum(0.0, np.minimum(ends, end_s) - begin)
    lives_s = np.maximum(ends - firsts, 1e-9)
    # Half way through the time that they run together.
    context = prompts + 1 + produced * (begin + together_s / 2 - firsts) / lives_s
    share = together_s / span_s
    is_read = (firsts > first_s) & (firsts <= end_s)
    kinds = serving_steps(
        decoding=float(share.sum()),
        kv_tokens=float((share * context).sum()),
        prefill_tokens=float(prompts[is_read].sum() / steps),
        attention=float((prompts[is_read] ** 2).sum() / 2 / steps),
        prefill_share=min(1.0, max(1.0, float(is_read.sum())) / steps),
    )
    return Measured(float(span_s / steps * NS_PER_S), kinds)
