"""``tokenweir profile fit``: an engine profile from what was measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenweir.cli.options import Json, duration, print_json, progress, table_console
from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.profiles import PROFILE_NAMES, profile

__all__ = ["fit"]

_SIZES = ("kv_tokens", "sequences_max", "step_tokens_max")


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Curves of one engine: timings per layer or operator, prefill and decode curves, "
            "totals at a concurrency, or its /metrics pages in order; folders for what is in them.",
            metavar="FILE...",
        ),
    ],
    like: Annotated[
        str,
        typer.Option(
            help="Gives what the files do not tell: sizes, and terms that nothing measured. "
            f"{', '.join(PROFILE_NAMES)}, or a file."
        ),
    ] = "8b-h100",
    name: Annotated[str, typer.Option(help="Of the new profile.")] = "fitted",
    where: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE that picks the rows of one engine; once per column."),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, help="Of the model, where file names do not tell.")
    ] = None,
    kv_tokens: Annotated[int | None, typer.Option(help="Size of the KV pool.")] = None,
    sequences_max: Annotated[int | None, typer.Option(help="Running requests.")] = None,
    step_tokens_max: Annotated[
        int | None, typer.Option(help="Token budget of a step, and of one request in it.")
    ] = None,
    median_gaps: Annotated[
        bool,
        typer.Option(
            "--median-gaps",
            help="Paces at a concurrency are median gaps, which prefills do not move.",
        ),
    ] = False,
    step_overhead: Annotated[
        str | None,
        typer.Option(help="Add to every step, as in 2ms: what kernel timings do not show."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the profile to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Fit an engine profile to measured curves, and say how well it fits."""
    from tokenweir.study.fitting.fit import fit_profile
    from tokenweir.study.fitting.formats import Wanted, read_curves
    from tokenweir.study.fitting.report import errors_table, fit_document, sourced

    sizes = {
        size: value
        for size, value in zip(_SIZES, (kv_tokens, sequences_max, step_tokens_max), strict=True)
        if value is not None
    }
    overhead_ns = 0 if step_overhead is None else duration(step_overhead, option="--step-overhead")
    base = _sized(profile(like), sizes)
    reading = read_curves(
        files,
        Wanted(
            step_tokens_max=base.step_tokens_max,
            sequences_max=base.sequences_max,
            kv_tokens=base.kv_tokens,
            layers=layers,
            where=_conditions(where or []),
            is_median=median_gaps,
        ),
    )
    base = _sized(base, {**dict(reading.told), **sizes})
    with progress("bends", total=0) as bar:
        found = fit_profile(
            reading,
            like=base,
            name=name,
            step_overhead_ns=overhead_ns,
            on_bend=lambda done, total: bar.update(bar.task_ids[0], completed=done, total=total),
        )
    found = sourced(found, like=like, step_overhead_ns=overhead_ns)
    if out is not None:
        _write(out, found.profile)
    if as_json:
        print_json(fit_document(found))
        return
    from tokenweir.cli.profile_tables import numbers_table

    console = table_console()
    console.print(numbers_table(found.profile))
    console.print(errors_table(found.errors, title="How far it is from what was measured"))


def _conditions(where: list[str]) -> tuple[tuple[str, str], ...]:
    conditions = []
    for text in where:
        column, sign, value = text.partition("=")
        if not sign or not column:
            raise ConfigError(f"--where {text!r} is not allowed, allowed: COLUMN=VALUE")
        conditions.append((column, value))
    return tuple(conditions)


def _sized(base: EngineProfile, sizes: dict[str, Any]) -> EngineProfile:
    """Return a profile with other sizes; one request may fill a step."""
    if "step_tokens_max" in sizes:
        sizes = {**sizes, "chunk_tokens_max": sizes["step_tokens_max"]}
    return dataclasses.replace(base, **sizes)


def _write(path: Path, fitted: EngineProfile) -> None:
    from tokenweir.profiles.text import profile_text

    try:
        path.write_text(profile_text(fitted), encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot write profile {path}: {exc.strerror}") from None
