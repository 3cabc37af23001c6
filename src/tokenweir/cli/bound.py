"""``tokenweir bound``: the most goodput that any policy could have had on a trace."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenweir.cli.options import Json, duration, print_json, progress, table_console
from tokenweir.cli.study_options import (
    File,
    Profile,
    Requests,
    SloTpot,
    SloTtft,
    SloUnloaded,
    Step,
    slo_from,
)
from tokenweir.core.units import s_from_ns
from tokenweir.profiles import profile as profile_named
from tokenweir.study.plan import surge_from, trace_from

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bound)


def bound(
    file: File,
    load: Annotated[
        float | None, typer.Option(help="Mean rate as a multiple of capacity; else as recorded.")
    ] = None,
    profile: Profile = "article",
    requests: Requests = None,
    step: Step = None,
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    slo_unloaded: SloUnloaded = 0.0,
    attempts_within: Annotated[
        str | None, typer.Option(help="Count attempts up to so long after the first arrival.")
    ] = None,
    bucket: Annotated[
        str | None, typer.Option(help="Width of time buckets, as in 1s; else by the trace.")
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            help="L: any scheduler. E: fixed steps, decode first, no pauses. knapsack: instant. "
            "all: those that fit the engine."
        ),
    ] = "all",
    as_json: Json = False,
) -> None:
    """Print the most goodput that anybody could have had who knew every length beforehand."""
    from tokenweir.study.bound.bound import KINDS, levels_for
    from tokenweir.study.bound.report import bound_rows, notes_on, width_of
    from tokenweir.study.bound.requests import requests_from
    from tokenweir.study.bound.tables import bounds_table
    from tokenweir.study.experiment import Experiment
    from tokenweir.study.replay import prepared

    engine = profile_named(profile)
    levels = levels_for(level, engine)
    slo = slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded)
    width_ns = None if bucket is None else duration(bucket, option="--bucket")
    attempts_ns = 0
    if attempts_within is not None:
        attempts_ns = duration(attempts_within, option="--attempts-within")
    ready = prepared(
        trace_from(file),
        Experiment(policy="none", engine=engine, slo=slo),
        load=load,
        requests=requests,
        surge=surge_from(step),
    )
    asked = requests_from(ready.arrivals, slo, engine=engine, attempts_ns=attempts_ns)
    width_ns = width_ns or width_of(asked, engine)
    with progress("bounds", total=len(levels) * len(KINDS)) as bar:
        rows = bound_rows(
            asked,
            engine,
            levels=levels,
            width_ns=width_ns,
            on_figure=lambda: bar.advance(bar.task_ids[0]),
        )
    notes = notes_on(asked, width_ns=width_ns, is_width_chosen=bucket is None)
    if as_json:
        print_json({
            "trace": file,
            "profile": profile,
            "requests": asked.count,
            "load": round(ready.load, 6),
            "capacity_rps": round(ready.capacity_rps, 6),
            "bucket_s": s_from_ns(width_ns),
            # How long it took is not part of the answer, which is the same every time.
            "bounds": [{k: v for k, v in row.items() if k != "took_s"} for row in rows],
            "notes": notes,
        })
        return
    console = table_console()
    title = (
        f"{file} on {profile}: {asked.count:,} requests at {ready.load:.3g} x capacity "
        f"({ready.capacity_rps:.2f} requests/s)"
    )
    console.print(bounds_table(rows, title=title))
    for note in notes:
        console.print(note)
