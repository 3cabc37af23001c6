"""Kernel times per operator and number of tokens, as Vidur's profiler writes them.

Model: ``time_stats.<operator>.median`` in ms, ``num_tokens``, ``num_tensor_parallel_workers``. A
step = layers x all operators + the embedding. There is no attention and no head in it: their terms
come from the profile to be like.
Source: Agrawal et al., Vidur, MLSys 2024, on how the tables were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenweir.core.units import NS_PER_MS
from tokenweir.study.fitting.curves import Curve, Measured, Reading, Step
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import Row, chosen, read_table

__all__ = ["is_of", "read"]

_PREFIX, _SUFFIX = "time_stats.", ".median"
_ENGINE = ("n_embd", "num_tensor_parallel_workers")
_ONCE_IN_MODEL = frozenset({"emb"})


def is_of(line: str) -> bool:
    """Tell by the header."""
    return line.startswith(_PREFIX) and "num_tokens" in line.split(",")


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read the rows of one model on one number of GPUs."""
    rows = [row for path in paths for row in read_table(path).rows]
    layers = wanted.layers_of(paths[0].name)
    points = tuple(
        _measured(row, layers=layers)
        for row in chosen(rows, wanted.where, keys=_ENGINE)
        if row.positive("num_tokens") <= wanted.step_tokens_max
    )
    return Reading(
        (Curve("dense layers", points),),
        source=f"fitted to median kernel times in {', '.join(path.name for path in paths)}",
    )


def _measured(row: Row, *, layers: int) -> Measured:
    total_ms = 0.0
    for column in row.values:
        if column.startswith(_PREFIX) and column.endswith(_SUFFIX):
            operator = column.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            count = 1 if operator in _ONCE_IN_MODEL else layers
            total_ms += count * row.number(column)
    return Measured(total_ms * NS_PER_MS, (Step(row.positive("num_tokens")),))
