"""``tokenweir tune``: settings for an SLO on a trace, judged on a part it was not tuned on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    phases,
    print_json,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import (
    Backend,
    Cooldown,
    Declared,
    File,
    Html,
    Jobs,
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
from tokenweir.core.policy import DEFAULT_POLICY
from tokenweir.study.report.page import check_report

if TYPE_CHECKING:
    # Takes longer to import than --help has to spare.
    from tokenweir.study.tune.run import Tuning

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tune)


def tune(
    file: File,
    policy: Annotated[str, typer.Option(help="Whose settings.")] = DEFAULT_POLICY,
    knobs: Annotated[
        str,
        typer.Option(
            help="all that it has, or of: limit, headroom, lengths, ordering, class_wait, ..."
        ),
    ] = "all",
    load: Annotated[str, typer.Option(help="Multiples of capacity, comma-separated.")] = "1,1.5,3",
    goal: Annotated[
        str, typer.Option("--for", help="Goodput in: tokens, requests, both.")
    ] = "both",
    attainment: Annotated[float, typer.Option(help="Least SLO attainment of admitted.")] = 0.98,
    hold_out: Annotated[float, typer.Option(help="Share of the trace that judges.")] = 0.4,
    profile: Profile = "article",
    requests: Requests = 5_000,
    warmup: Warmup = 1_000,
    cooldown: Cooldown = 500,
    declared: Declared = "mix",
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    slo_unloaded: SloUnloaded = 0.0,
    seeds: Seeds = 1,
    jobs: Jobs = None,
    backend: Backend = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep finished runs in DIR, and go on from there.")
    ] = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Tune a policy's settings on one part of a trace, and judge them on the rest."""
    from tokenweir.study.knobs import knobs_from
    from tokenweir.study.sweep.measure import Job, prepared_job
    from tokenweir.study.sweep.plan import Cell, loads_from
    from tokenweir.study.tune.run import Tuning, halves
    from tokenweir.study.tune.search import Search

    loads, chosen = loads_from(load), seeds_of(seeds)
    whole = Job(
        cell=Cell(file, profile, loads[0]),
        policy=policy,
        setting=(),
        seed=chosen[0],
        requests=requests,
        warmup=warmup,
        cooldown=cooldown,
        wishes=wishes_from(
            declared=declared, slo=slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded)
        ),
    )
    experiment, _ = prepared_job(whole)
    names = knobs_from(knobs, name=policy, has_tenants=len(experiment.asked) > 1)
    first, second = halves(whole, share=hold_out)
    tuning = Tuning(Search(first, names, loads, chosen, goal, attainment), second)
    at_once = jobs_from(jobs, backend=backend)
    check_report(html)
    _run(tuning, processes=at_once, backend=backend, out=out, html=html, as_json=as_json)


def _run(
    tuning: Tuning,
    *,
    processes: int,
    backend: str | None,
    out: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    from tokenweir.study.report.page import write_page
    from tokenweir.study.sweep.store import Store
    from tokenweir.study.tune.report import tuning_page
    from tokenweir.study.tune.run import tune as tune_now
    from tokenweir.study.tune.run import tuning_document

    store = Store(out)
    collect_seldom()
    try:
        with phases() as on_phase:
            on_job = on_phase("runs", None)
            tune_now(tuning, store, processes=processes, backend=backend, on_job=on_job)
    finally:
        # Whatever ended it: what is known is shown.
        store.close()
        document = tuning_document(tuning)
        if html is not None:
            write_page(tuning_page(document, command=command_line()), html)
        _show(document, as_json=as_json)


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    from tokenweir.study.tune.tables import held_out_table, trials_table, weights_line

    if as_json:
        print_json(document)
        return
    console = table_console()
    console.print(trials_table(document))
    if document["is_complete"]:
        console.print(held_out_table(document))
    if weights := weights_line(document):
        console.print(weights)
    console.print(document["advice"])
