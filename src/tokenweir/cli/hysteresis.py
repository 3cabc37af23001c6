"""``tokenweir hysteresis``: load up and down again, with clients that time out and retry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    duration,
    print_json,
    progress,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import (
    Backend,
    Declared,
    Html,
    Jobs,
    Profile,
    Retries,
    Retry,
    Seeds,
    SloTpot,
    SloTtft,
    SloUnloaded,
    command_line,
    jobs_from,
    slo_from,
    wishes_from,
)
from tokenweir.core.policy import DEFAULT_POLICY
from tokenweir.core.units import s_from_ns
from tokenweir.study.plan import TRACE_NAMES, experiment_from
from tokenweir.study.report.page import check_report

if TYPE_CHECKING:
    # Takes longer to import than --help has to spare.
    from tokenweir.study.hysteresis.run import Climb

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(hysteresis)


def hysteresis(
    file: Annotated[
        str,
        typer.Argument(
            help=f"Whose lengths: a trace, or {', '.join(TRACE_NAMES)}.", metavar="FILE"
        ),
    ] = "article-lengths",
    policy: Annotated[
        str, typer.Option(help="Policies, comma-separated; NAME=N sets a limit.")
    ] = f"{DEFAULT_POLICY},none",
    profile: Profile = "article",
    low: Annotated[float, typer.Option("--from", help="Lowest load, x capacity.")] = 0.5,
    high: Annotated[float, typer.Option("--to", help="Highest load.")] = 2.0,
    by: Annotated[float, typer.Option(help="Difference of two steps.")] = 0.1,
    hold: Annotated[str, typer.Option(help="Length of a step.")] = "60s",
    retry: Retry = "exponential",
    retries: Retries = 3,
    timeout: Annotated[str, typer.Option(help="Clients' patience for the first token.")] = "10s",
    declared: Declared = "mix",
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    slo_unloaded: SloUnloaded = 0.0,
    seeds: Seeds = 1,
    jobs: Jobs = None,
    backend: Backend = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Lead load up and down: the goodput that is missing on the way down is the area."""
    from tokenweir.study.hysteresis.run import climbs
    from tokenweir.study.hysteresis.stairs import Stairs, climbed
    from tokenweir.study.sweep.contenders import contenders_from

    stairs = Stairs(low, high, by, s_from_ns(duration(hold, option="--hold")))
    wishes = wishes_from(
        profile=profile,
        declared=declared,
        retry=retry,
        retries=retries,
        timeout=timeout,
        slo=slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded),
    )
    contenders = contenders_from(policy, may_tune=False)
    chosen = seeds_of(seeds)
    check_report(html)
    at_once = jobs_from(jobs, backend=backend)
    # Whatever is wrong with trace or profile is said before the first run.
    climbed(stairs, experiment_from(wishes).engine, trace=file, seed=chosen[0])
    runs = climbs(contenders, trace=file, stairs=stairs, seeds=chosen, wishes=wishes)
    what = {"trace": file, "profile": profile, "hold_s": stairs.seconds, "declared": declared}
    what |= {"retry": retry, "retries": retries, "timeout": timeout}
    what["slo"] = dataclasses.asdict(wishes.slo)
    _run(runs, what=what, processes=at_once, backend=backend, html=html, as_json=as_json)


def _run(
    runs: Sequence[Climb],
    *,
    what: dict[str, Any],
    processes: int,
    backend: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    from tokenweir.study.hysteresis.report import hysteresis_page
    from tokenweir.study.hysteresis.run import hysteresis_rows, measured_climbs
    from tokenweir.study.report.page import write_page

    measured: list[tuple[Climb, dict[str, Any]]] = []
    collect_seldom()
    try:
        with progress("runs", total=len(runs)) as bar:

            def keep(run: Climb, figures: dict[str, Any]) -> None:
                measured.append((run, figures))
                bar.advance(bar.task_ids[0])

            measured_climbs(runs, processes=processes, backend=backend, on_run=keep)
    finally:
        # Whatever ended it: what has been measured is shown.
        document = {
            **what,
            "is_complete": len(measured) == len(runs),
            "rows": hysteresis_rows(measured, stairs=runs[0].stairs),
        }
        if html is not None:
            write_page(hysteresis_page(document, command=command_line()), html)
        _show(document, as_json=as_json)


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    from tokenweir.study.hysteresis.tables import areas_table, steps_table

    if as_json:
        print_json(document)
        return
    console = table_console()
    rows = document["rows"]
    if rows:
        steps = rows[0]["steps"]
        title = (
            f"{document['trace']} on {document['profile']}, {steps[0]['load']:g} to "
            f"{steps[-1]['load']:g} x capacity and back, {document['hold_s']:g} s each; "
            "area = mean |up - down|"
        )
        console.print(areas_table(rows, title=title))
        console.print(steps_table(rows))
    if not document["is_complete"]:
        console.print("interrupted: only runs that had ended are shown")
