"""``tokenweir compare``: two policies on the same requests, figure by figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    print_json,
    progress,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import (
    Backend,
    Cooldown,
    Declared,
    Fairness,
    File,
    Html,
    Jobs,
    Ordering,
    Profile,
    Requests,
    Seeds,
    SloTpot,
    SloTtft,
    SloUnloaded,
    Warmup,
    command_line,
    jobs_from,
    slo_from,
    wishes_from,
)
from tokenweir.study.report.page import check_report

if TYPE_CHECKING:
    # Takes longer to import than --help has to spare.
    from tokenweir.study.compare.run import Comparison

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def compare(
    file: File,
    first: Annotated[str, typer.Argument(help="A policy; NAME=N sets its limit.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    load: Annotated[float, typer.Option(help="Rate as a multiple of capacity.")] = 1.0,
    profile: Profile = "article",
    requests: Requests = None,
    warmup: Warmup = 1_000,
    cooldown: Cooldown = 500,
    ordering: Ordering = "earliest_deadline",
    fairness: Fairness = "vtc",
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
    """Run two policies on common random numbers: paired differences with 95 % intervals."""
    from tokenweir.study.compare.run import Comparison
    from tokenweir.study.sweep.contenders import contenders_from
    from tokenweir.study.sweep.measure import Job
    from tokenweir.study.sweep.plan import Cell

    ours, theirs = contenders_from([first, second], may_tune=False)
    chosen = seeds_of(seeds)
    job = Job(
        cell=Cell(file, profile, load),
        policy=ours.policy,
        setting=ours.setting,
        seed=chosen[0],
        requests=requests,
        warmup=warmup,
        cooldown=cooldown,
        wishes=wishes_from(
            declared=declared,
            slo=slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded),
            ordering=ordering,
            fairness=fairness,
        ),
    )
    check_report(html)
    at_once = jobs_from(jobs, backend=backend)
    comparison = Comparison(job, (ours, theirs), chosen)
    _run(comparison, processes=at_once, backend=backend, html=html, as_json=as_json)


def _run(
    comparison: Comparison,
    *,
    processes: int,
    backend: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    from tokenweir.study.compare.columns import Columns
    from tokenweir.study.compare.report import comparison_page
    from tokenweir.study.compare.run import comparison_document, run_pairs
    from tokenweir.study.compare.tables import comparison_table
    from tokenweir.study.report.page import write_page

    runs: list[Columns] = []
    collect_seldom()
    try:
        with progress("runs", total=2 * len(comparison.seeds)) as bar:

            def keep(columns: Columns) -> None:
                runs.append(columns)
                bar.advance(bar.task_ids[0])

            run_pairs(comparison, processes=processes, backend=backend, on_run=keep)
    finally:
        # Whatever ended it: what has been measured is shown.
        if len(runs) > 1:
            document = comparison_document(comparison, runs)
            if html is not None:
                write_page(comparison_page(document, command=command_line()), html)
            if as_json:
                print_json(document)
            else:
                table_console().print(comparison_table(document))
