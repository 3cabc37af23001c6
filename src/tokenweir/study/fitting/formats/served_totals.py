"""Mean TTFT and TPOT of whole engines at fixed concurrencies, as AIConfigurator collects them.

Model: ``isl, osl, batch_size`` (requests in flight), ``silicon_ttft_ms, silicon_tpot_ms``. In a
steady closed loop each of the B requests is prefilled once in every osl steps, so that a share
B x ceil(isl / budget) / osl of the steps carries prefill and TPOT is the mean over both kinds.
Where the median gap was recorded, which some sources of these rows seem to have done, it is a step
that only decodes; the files do not say, so the user does. The first token counts only where one
request is in flight: else it holds waiting. Rows of separate prefill and decode engines are left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_MS
from tokenweir.study.fitting.curves import Curve, Measured, Reading, prefill_steps, serving_steps
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import Row, chosen, read_table

__all__ = ["is_of", "read"]

_COLUMNS = ("isl", "osl", "batch_size", "silicon_ttft_ms", "silicon_tpot_ms")
_ENGINE = (
    *("model_path", "system", "backend", "backend_version", "precision", "gemm_quant_mode"),
    *("moe_quant_mode", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"),
)
_TOGETHER = ("mode", "agg")


def is_of(line: str) -> bool:
    """Tell by the header."""
    return set(line.split(",")).issuperset(_COLUMNS)


def read(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read the rows of one engine."""
    rows = [row for path in paths for row in read_table(path).rows]
    kept = chosen(rows, (_TOGETHER, *wanted.where), keys=_ENGINE)
    paces = tuple(_pace(row, wanted) for row in kept if _is_steady(row, wanted))
    alone = tuple(_first_token(row, wanted) for row in kept if row.number("batch_size") == 1)
    if not paces:
        raise ConfigError(
            f"none of {len(kept)} rows fits an engine of {wanted.sequences_max} seats and "
            f"{wanted.kv_tokens:,} KV tokens, allowed: --sequences-max, --kv-tokens"
        )
    engine = ", ".join(f"{key} {kept[0].values[key]}" for key in _ENGINE if kept[0].values.get(key))
    return Reading(
        (
            Curve("pace under load", paces),
            *([Curve("first token", alone, has_overhead=True)] if alone else []),
        ),
        source=f"fitted to {len(kept)} served totals in {paths[0].name}: {engine}",
    )


def _is_steady(row: Row, wanted: Wanted) -> bool:
    """Whether all requests in flight run, so that nothing but steps makes the pace."""
    batch = row.positive("batch_size")
    held = batch * (row.positive("isl") + row.positive("osl") / 2)
    return batch <= wanted.sequences_max and held <= wanted.kv_tokens


def _pace(row: Row, wanted: Wanted) -> Measured:
    prompt, output = row.positive("isl"), row.positive("osl")
    batch = row.positive("batch_size")
    chunks = -(-prompt // wanted.step_tokens_max)
    steps = serving_steps(
        decoding=batch,
        kv_tokens=batch * (prompt + output / 2),
        prefill_tokens=0.0 if wanted.is_median else batch * prompt / output,
        attention=batch * prompt * prompt / 2 / output,
        prefill_share=min(1.0, batch * chunks / output),
    )
    return Measured(row.positive("silicon_tpot_ms") * NS_PER_MS, steps)


def _first_token(row: Row, wanted: Wanted) -> Measured:
    steps = prefill_steps(int(row.positive("isl")), step_tokens_max=wanted.step_tokens_max)
    return Measured(row.positive("silicon_ttft_ms") * NS_PER_MS, steps)
