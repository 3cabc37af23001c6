"""``tokenweir load``: open-loop replay of a trace over HTTP."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from tokenweir.cli.options import Json, duration, print_json, table_console
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import s_from_ns
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.study.load.command import planned_rate_rps, run_command
from tokenweir.study.load.plan import LoadShape, PlannedRequest, plan_requests, rate_for_load
from tokenweir.study.load.report import load_notes, load_table
from tokenweir.study.load.results import LoadOutcome, load_row
from tokenweir.study.load.run import LoadTarget
from tokenweir.study.plan import DECLARATION_NAMES, TRACE_NAMES, Slo, surge_from, trace_from

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("load")(load)


def load(
    file: Annotated[
        str, typer.Argument(help=f"A trace, or one of: {', '.join(TRACE_NAMES)}.", metavar="FILE")
    ],
    url: Annotated[str, typer.Option(help="Base address of what is tested.")],
    rate: Annotated[float | None, typer.Option(help="Mean requests per second.")] = None,
    speed: Annotated[float | None, typer.Option(help="Times as fast as the trace.")] = None,
    times: Annotated[
        float | None, typer.Option("--load", help="Rate as a multiple of --profile's capacity.")
    ] = None,
    profile_name: Annotated[
        str | None,
        typer.Option("--profile", help=f"For --load: {', '.join(PROFILE_NAMES)}, or a file."),
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Send at most so many.")] = None,
    during: Annotated[
        str | None, typer.Option("--duration", help="Arrivals end then, as in 60s.")
    ] = None,
    skip: Annotated[
        str | None, typer.Option(help="Leave out the trace's first part, as in 5m.")
    ] = None,
    scale_tokens: Annotated[float, typer.Option(help="Lengths are multiplied by it.")] = 1.0,
    output_max: Annotated[
        str, typer.Option(help=f"Declared maximum: {', '.join(DECLARATION_NAMES)}.")
    ] = "exact",
    timeout: Annotated[str, typer.Option(help="A client gives up after it.")] = "600s",
    retries: Annotated[int, typer.Option(help="After the first attempt.")] = 2,
    slo_ttft: Annotated[str, typer.Option(help="Bound of the first token.")] = "1s",
    slo_tpot: Annotated[str, typer.Option(help="Bound of the mean gap after it.")] = "80ms",
    step: Annotated[str | None, typer.Option(help="A sudden step, as in 3x@30s.")] = None,
    drain: Annotated[
        str, typer.Option(help="Wait so long for answers after the last arrival.")
    ] = "60s",
    model: Annotated[str | None, typer.Option(help="Default: the first one listed.")] = None,
    api_key: Annotated[str, typer.Option(help="Sent as bearer.")] = "load",
    seed: Annotated[int, typer.Option(help="Of declarations, texts and backoff.")] = 1,
    as_json: Json = False,
) -> None:
    """Replay a trace over HTTP with real text; clients give up and retry as the SDKs do."""
    shape = LoadShape(
        speed=1.0 if speed is None else speed,
        requests_max=requests,
        duration_ns=None if during is None else duration(during, option="--duration"),
        skip_ns=0 if skip is None else duration(skip, option="--skip"),
        length_ratio=scale_tokens,
        declaration=output_max,
        surge=surge_from(step),
        seed=seed,
    )
    target = LoadTarget(
        url=url,
        model=model,
        timeout_s=s_from_ns(duration(timeout, option="--timeout")),
        retries=retries,
        api_key=api_key,
    )
    ttft_ns = duration(slo_ttft, option="--slo-ttft")
    slo = Slo(ttft_ns, duration(slo_tpot, option="--slo-tpot"))
    drain_s = s_from_ns(duration(drain, option="--drain"))
    plan = _plan(file, shape, paces=(rate, speed, times), profile_name=profile_name)
    outcome = run_command(plan, target, drain_s=drain_s, seed=seed)
    _report(outcome, slo, as_json=as_json)


def _plan(
    file: str,
    shape: LoadShape,
    *,
    paces: tuple[float | None, float | None, float | None],
    profile_name: str | None,
) -> list[PlannedRequest]:
    """Return what is sent; ``paces`` are the options rate, speed and load, of which one may be."""
    rate, _, times = paces
    if sum(pace is not None for pace in paces) > 1:
        raise ConfigError("--rate, --speed and --load exclude each other, allowed: one of them")
    if (times is None) != (profile_name is None):
        raise ConfigError("--load and --profile belong together, allowed: both or neither")
    arrivals = trace_from(file)
    if times is not None and profile_name is not None:
        rate = rate_for_load(arrivals, shape, load=times, profile=profile(profile_name))
    return plan_requests(arrivals, dataclasses.replace(shape, rate_rps=rate))


def _report(outcome: LoadOutcome, slo: Slo, *, as_json: bool) -> None:
    rate_rps = planned_rate_rps(outcome.plan)
    row = load_row(outcome, slo, load=rate_rps, policy=None, queue=None)
    notes = load_notes(row["ours"])
    if as_json:
        print_json({"rows": [row]})
        sys.stderr.writelines(f"{note}\n" for note in notes)
    else:
        console = table_console()
        console.print(load_table(row["ours"], title=f"{rate_rps:.2f} requests/s"))
        for note in notes:
            console.print(note, soft_wrap=True)
    if not outcome.is_complete:
        raise typer.Exit(130)
