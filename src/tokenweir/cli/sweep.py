"""``tokenweir sweep``: policies x loads x seeds x profiles x traces, and what they promise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    duration,
    phases,
    print_json,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import (
    Backend,
    Declared,
    Fairness,
    Html,
    Jobs,
    Ordering,
    Seeds,
    command_line,
    jobs_from,
    wishes_from,
)
from tokenweir.core.errors import ConfigError
from tokenweir.study.report.page import check_report

if TYPE_CHECKING:
    # Takes longer to import than --help has to spare.
    from tokenweir.study.sweep.plan import PlanRow, SweepPlan

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)


def sweep(
    plan: Annotated[
        str, typer.Option(help="What to start from: quick, real or real-full; all else changes it.")
    ] = "quick",
    trace: Annotated[str | None, typer.Option(help="Traces, comma-separated.")] = None,
    profile: Annotated[str | None, typer.Option(help="Profiles, comma-separated.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policies; NAME* tunes its limit, NAME=N sets it. The first is judged by the rest."
        ),
    ] = None,
    load: Annotated[str | None, typer.Option(help="Multiples of capacity.")] = None,
    seeds: Seeds = 1,
    requests: Annotated[str | None, typer.Option(help="Measured requests, or all.")] = None,
    tune_requests: Annotated[int, typer.Option(help="The same while tuning.")] = 3_000,
    warmup: Annotated[int | None, typer.Option(help="Requests run before, not counted.")] = None,
    cooldown: Annotated[int | None, typer.Option(help="The same after.")] = None,
    slo_ttft: Annotated[str | None, typer.Option(help="Bound on TTFT.")] = None,
    slo_tpot: Annotated[str | None, typer.Option(help="Bound on TPOT.")] = None,
    slo_unloaded: Annotated[
        float | None, typer.Option(help="Or so many times the idle TTFT, if that is more.")
    ] = None,
    ordering: Ordering = "earliest_deadline",
    fairness: Fairness = "vtc",
    declared: Declared = "mix",
    jobs: Jobs = None,
    backend: Backend = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep finished runs in DIR, and go on from there.")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure goodput of policies over loads, seeds, profiles and traces."""
    from tokenweir.study.sweep.plan import plan_named, sweep_plan

    row = _changed(
        plan_named(plan),
        traces=_words(trace),
        profiles=_words(profile),
        policies=_words(policy),
        load=load,
        requests=requests,
        warmup=warmup,
        cooldown=cooldown,
        slo=(slo_ttft, slo_tpot, slo_unloaded),
    )
    asked = sweep_plan(
        row,
        name=plan,
        wishes=wishes_from(declared=declared, slo=row.slo, ordering=ordering, fairness=fairness),
        seeds=tuple(seeds_of(seeds)),
        tuning_requests=tune_requests,
    )
    if tune_requests < 2:
        raise ConfigError(f"--tune-requests {tune_requests} is not allowed, allowed: 2 or more")
    check_report(html)
    at_once = jobs_from(jobs, backend=backend)
    _run(asked, processes=at_once, backend=backend, out=out, html=html, as_json=as_json)


def _changed(
    row: PlanRow,
    *,
    load: str | None,
    requests: str | None,
    slo: tuple[str | None, str | None, float | None],
    **changes: Any,
) -> PlanRow:
    """Return a plan's row with what the command line changes in it; None changes nothing."""
    from tokenweir.study.sweep.plan import loads_from

    ttft, tpot, unloaded = slo
    bounds = {
        "ttft_ns": None if ttft is None else duration(ttft, option="--slo-ttft"),
        "tpot_ns": None if tpot is None else duration(tpot, option="--slo-tpot"),
        "unloaded_ratio": unloaded,
    }
    changes["slo"] = dataclasses.replace(row.slo, **_given(bounds))
    if load is not None:
        changes |= {"loads": loads_from(load), "tuning_loads": ()}
    row = dataclasses.replace(row, **_given(changes))
    if requests is not None:
        row = dataclasses.replace(row, requests=_requests(requests))
    return row


def _run(
    asked: SweepPlan,
    *,
    processes: int,
    backend: str | None,
    out: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    from tokenweir.study.report.page import write_page
    from tokenweir.study.sweep.document import run_sweep, sweep_document
    from tokenweir.study.sweep.report import sweep_page
    from tokenweir.study.sweep.run import sweep_workloads
    from tokenweir.study.sweep.store import Store

    workloads = sweep_workloads(asked)
    store = Store(out)
    collect_seldom()
    try:
        with phases() as on_phase:
            run_sweep(asked, store, processes=processes, backend=backend, on_phase=on_phase)
    finally:
        # Whatever ended it: what has been measured is shown.
        store.close()
        document = sweep_document(asked, store, workloads=workloads)
        if html is not None:
            write_page(sweep_page(document, command=command_line()), html)
        _show(document, as_json=as_json)


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    from tokenweir.study.sweep.tables import cells_table, tuning_table, verdicts_table

    if as_json:
        print_json(document)
        return
    console = table_console()
    if document["tuning"]:
        console.print(tuning_table(document["tuning"]))
    console.print(cells_table(document))
    console.print(verdicts_table(document))
    if not document["is_complete"]:
        console.print("interrupted: only cells that had ended are shown")


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(","))


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def _requests(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--requests {text!r} is not allowed, allowed: 2 or more, or all"
        ) from None
