"""Kernel timings of one layer's parts: dense layers by tokens, attention by batch, the head.

Model: three files of one engine. ``layer, tokens, time_us`` (dense), ``layer, sequences, time_us``
(once per step), ``prefill_chunk, kv_prefill, n_decode, kv_decode, time_us`` (attention of one
layer). A step = layers x (dense + attention) + what stands once in a model: embedding, last norm,
head and sampler. Only steps that the engine could run are used: within its token budget, its seats
and its pool.
Trade-off: what the CPU does and what is sent between GPUs is in none of them; ``--step-overhead``
adds a constant for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.study.fitting.curves import Curve, Measured, Reading, Step
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import Row, Table, read_table

__all__ = ["is_of", "read"]

_NS_PER_US = 1_000

_DENSE = "layer,tokens,time_us"
_ONCE = "layer,sequences,time_us"
_ATTENTION = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
_PARTS = {_DENSE: "dense", _ONCE: "per_sequence", _ATTENTION: "attention"}

# Of the dense parts: those that a model has once, and twice in each layer.
_ONCE_IN_MODEL = frozenset({"embedding", "final_layernorm"})
_TWICE_IN_LAYER = frozenset({"layernorm"})


def is_of(line: str) -> bool:
    """Tell by the header."""
    return line in _PARTS


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read the three files of one engine.

    Raises:
        ConfigError: One is missing, or there are two of a kind.
    """
    parts = _parts(paths)
    layers = wanted.layers_of(parts["dense"].path.name)
    dense = _Line(_dense_ns(parts["dense"], layers=layers))
    once = _Line(_sums_ns(parts["per_sequence"], "sequences"))
    curves: dict[str, list[Measured]] = {"decode": [], "prefill": [], "mixed": []}
    for row in parts["attention"].rows:
        step = _step(row)
        if not _fits(row, step, wanted=wanted, dense=dense, once=once):
            continue
        kernels_ns = layers * row.number("time_us") * _NS_PER_US
        value_ns = dense.at(step.tokens) + once.at(step.sequences) + kernels_ns
        name = "mixed" if step.kv_tokens and step.attention else "decode"
        name = name if step.kv_tokens else "prefill"
        curves[name].append(Measured(value_ns, (step,)))
    return Reading(
        tuple(Curve(name, tuple(points)) for name, points in curves.items() if points),
        source=f"fitted to timings of each layer in {', '.join(path.name for path in paths)}",
    )


class _Line:
    """Straight lines between measured sizes."""

    def __init__(self, points: dict[int, float]) -> None:
        self._sizes = np.array(sorted(points), dtype=np.float64)
        self._times_ns = np.array([points[size] for size in sorted(points)])
        self.size_max = float(self._sizes[-1])

    def at(self, size: float) -> float:
        return float(np.interp(size, self._sizes, self._times_ns))


def _parts(paths: Sequence[Path]) -> dict[str, Table]:
    parts: dict[str, Table] = {}
    for path in paths:
        table = read_table(path)
        kind = _PARTS[",".join(table.rows[0].values)]
        if kind in parts:
            raise ConfigError(
                f"{path}: a second file of timings {kind}, allowed: those of one engine"
            )
        parts[kind] = table
    missing = [kind for kind in _PARTS.values() if kind not in parts]
    if missing:
        raise ConfigError(
            f"the file with timings {missing[0]} is missing, allowed: all of "
            f"{', '.join(_PARTS.values())}"
        )
    return parts


def _dense_ns(table: Table, *, layers: int) -> dict[int, float]:
    times: dict[int, float] = {}
    for row in table.rows:
        layer, tokens = row.values["layer"], int(row.positive("tokens"))
        count = 1 if layer in _ONCE_IN_MODEL else layers * (1 + (layer in _TWICE_IN_LAYER))
        times[tokens] = times.get(tokens, 0.0) + count * row.positive("time_us") * _NS_PER_US
    return times


def _sums_ns(table: Table, size: str) -> dict[int, float]:
    times: dict[int, float] = {}
    for row in table.rows:
        key = int(row.positive(size))
        times[key] = times.get(key, 0.0) + row.positive("time_us") * _NS_PER_US
    return times


def _step(row: Row) -> Step:
    chunk, before = row.number("prefill_chunk"), row.number("kv_prefill")
    decoding, context = row.number("n_decode"), row.number("kv_decode")
    return Step(
        tokens=chunk + decoding,
        kv_tokens=decoding * context,
        sequences=decoding + (chunk > 0),
        attention=chunk * (before + chunk / 2),
    )


def _fits(row: Row, step: Step, *, wanted: Wanted, dense: _Line, once: _Line) -> bool:
    held = step.kv_tokens + row.number("prefill_chunk") + row.number("kv_prefill")
    return (
        0 < step.tokens <= min(wanted.step_tokens_max, dense.size_max)
        and step.sequences <= min(wanted.sequences_max, once.size_max)
        and held <= wanted.kv_tokens
    )
