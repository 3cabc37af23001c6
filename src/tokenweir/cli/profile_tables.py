"""How is an engine profile shown on a terminal?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_MS

__all__ = ["first_tokens_table", "numbers_table", "paces_table", "profiles_table"]

# One step that decodes 64 requests of 1,000 tokens of context.
_DECODING = 64
_CONTEXT_TOKENS = 1_000

# What each number means to somebody who has not read the formula.
_MEANINGS = {
    "step_ns": "an empty step, bound by reading the weights",
    "token_ns": "and what each token of it adds",
    "compute_step_ns": "an empty step, bound by computing",
    "compute_token_ns": "and what each token of it adds",
    "kv_token_ns": "reading a token of a decoding request's context",
    "sequence_ns": "each request in a step",
    "attention_ns": "each pair of prefill token and context token",
    "step_tokens_max": "tokens in a step, prefill and decode",
    "chunk_tokens_max": "prefill tokens of one request in a step",
    "kv_tokens": "size of the KV pool",
    "sequences_max": "running requests",
}
_PREFILLS = (128, 512, 2_048, 8_192)
_BATCHES = (1, 8, 64, 256)
_CONTEXTS = (500, 2_000, 8_000)


def profiles_table(rows: Sequence[EngineProfile]) -> Table:
    """Return one line per profile."""
    table = Table(title="Engine profiles", title_justify="left")
    table.add_column("name", no_wrap=True)
    for heading in (
        "KV tokens",
        "seats",
        "tokens\na step",
        "full step\nms",
        f"{_DECODING} decoding\nms a token",
    ):
        table.add_column(heading, justify="right")
    table.add_column("source", overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.kv_tokens:,}",
            f"{row.sequences_max:,}",
            f"{row.step_tokens_max:,}",
            _ms(row.duration_ns(tokens=row.step_tokens_max)),
            _ms(_decode_ns(row, requests=_DECODING, context_tokens=_CONTEXT_TOKENS)),
            escape(row.source),
        )
    return table


def numbers_table(row: EngineProfile) -> Table:
    """Return every number of a profile with its meaning; the source stands below."""
    table = Table(
        title=escape(row.name),
        title_justify="left",
        caption=escape(row.source),
        caption_justify="left",
    )
    table.add_column("key", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("what it is")
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if not isinstance(value, str):
            table.add_row(field.name, f"{value:,}", _MEANINGS.get(field.name, ""))
    return table


def first_tokens_table(row: EngineProfile) -> Table:
    """Return how long an idle engine needs for a first token."""
    table = Table(title="First token of an idle engine", title_justify="left")
    table.add_column("prompt tokens", no_wrap=True)
    for count in _PREFILLS:
        table.add_column(f"{count:,}", justify="right")
    table.add_row("ms", *(_ms(row.unloaded_first_token_ns(count)) for count in _PREFILLS))
    return table


def paces_table(row: EngineProfile) -> Table:
    """Return how long a step takes that only decodes; a dash stands where the KV pool ends."""
    table = Table(title="Decoding, ms a token", title_justify="left")
    table.add_column("tokens of context", justify="right", no_wrap=True)
    for requests in _BATCHES:
        table.add_column(f"{requests} request{'s' * (requests > 1)}", justify="right")
    for context in _CONTEXTS:
        paces = (_pace(row, requests=n, context_tokens=context) for n in _BATCHES)
        table.add_row(f"{context:,}", *paces)
    return table


def _pace(row: EngineProfile, *, requests: int, context_tokens: int) -> str:
    """Return the length of a decode step, or a dash where it does not fit the engine."""
    if requests > row.sequences_max or requests * context_tokens > row.kv_tokens:
        return "-"
    return _ms(_decode_ns(row, requests=requests, context_tokens=context_tokens))


def _decode_ns(row: EngineProfile, *, requests: int, context_tokens: int) -> int:
    return row.duration_ns(tokens=requests, kv_tokens=requests * context_tokens, sequences=requests)


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / NS_PER_MS:.1f}"
