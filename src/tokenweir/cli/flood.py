"""``tokenweir flood``: what one tenant's flood costs its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

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
    Declared,
    Fairness,
    Html,
    Jobs,
    Profile,
    Requests,
    Seeds,
    SloTpot,
    SloTtft,
    SloUnloaded,
    command_line,
    jobs_from,
    load_from,
    slo_from,
    wishes_from,
)
from tokenweir.core.policy import DEFAULT_POLICY, policy
from tokenweir.core.units import s_from_ns
from tokenweir.study.plan import experiment_from
from tokenweir.study.report.page import check_report

__all__ = ["register"]

Policy = Annotated[str, typer.Option("--policy", help="One policy.")]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="What one tenant's flood costs its neighbours.")
    app.add_typer(group, name="flood", no_args_is_help=True)
    group.command()(quiet)
    group.command()(pair)


def quiet(
    flood: Annotated[float, typer.Option(help="Requests/s of the flooding tenant.")] = 80.0,
    rate: Annotated[float, typer.Option("--quiet", help="Of the quiet one.")] = 1.0,
    span: Annotated[str, typer.Option("--for", help="How long both send.")] = "2m",
    policy_name: Policy = DEFAULT_POLICY,
    profile: Profile = "article",
    fairness: Fairness = "vtc",
    declared: Declared = "mix",
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    seeds: Seeds = 6,
    jobs: Jobs = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """A quiet tenant's first tokens alone, beside a flood, and with no bound in the engine."""
    from tokenweir.study.flood.quiet import CASES, Neighbours, quiet_rows
    from tokenweir.study.flood.report import quiet_page
    from tokenweir.study.flood.tables import quiet_table, quiet_verdicts, verdicts_table
    from tokenweir.study.report.page import write_page

    policy(policy_name)
    chosen = seeds_of(seeds)
    neighbours = Neighbours(
        flood_rps=flood, quiet_rps=rate, span_s=s_from_ns(duration(span, option="--for"))
    )
    slo = slo_from(slo_ttft, slo_tpot, unloaded=0.0)
    wishes = wishes_from(profile=profile, declared=declared, fairness=fairness, slo=slo)
    experiment = replace(experiment_from(wishes), policy=policy_name)
    check_report(html)
    collect_seldom()
    with progress("runs", total=len(CASES) * len(chosen)) as bar:
        rows = quiet_rows(
            experiment,
            neighbours,
            seeds=chosen,
            processes=jobs_from(jobs, backend=None),
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )
    found = quiet_verdicts(rows)
    title = f"{rate:g} requests/s beside {flood:g} on {profile}, {policy_name}, {fairness}"
    if html is not None:
        write_page(quiet_page(rows, found, lead=[title], command=command_line()), html)
    if as_json:
        print_json({"rows": rows, "targets": found})
        return
    console = table_console()
    console.print(quiet_table(rows, title=f"{title}, mean of {len(chosen)} seeds"))
    console.print(verdicts_table(found))


def pair(
    traces: Annotated[
        str, typer.Option("--trace", help="Traces with a known flood, by comma.")
    ] = "servegen-cheap,servegen-costly",
    profiles: Annotated[
        str, typer.Option("--profile", help="Profiles, by comma.")
    ] = "8b-h100,8b-a100,70b-4xh100",
    load: Annotated[
        str, typer.Option(help="Multiples of capacity of the whole trace, or recorded, by comma.")
    ] = "recorded",
    requests: Requests = None,
    policy_name: Policy = DEFAULT_POLICY,
    fairness: Fairness = "vtc",
    declared: Declared = "mix",
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    slo_unloaded: SloUnloaded = 3.0,
    seeds: Seeds = 1,
    jobs: Jobs = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Recorded traces with and without the tenant that floods in them, tenant by tenant."""
    from tokenweir.study.flood.pair import cells_from, pair_rows
    from tokenweir.study.flood.report import pair_page
    from tokenweir.study.flood.tables import (
        pair_table,
        pair_verdicts,
        tenants_table,
        verdicts_table,
    )
    from tokenweir.study.report.page import write_page

    policy(policy_name)
    chosen = seeds_of(seeds)
    cells = cells_from(
        traces, profiles, loads=[load_from(part.strip()) for part in load.split(",")]
    )
    slo = slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded)
    wishes = wishes_from(declared=declared, fairness=fairness, slo=slo)
    experiment = replace(experiment_from(wishes), policy=policy_name)
    check_report(html)
    collect_seldom()
    with progress("runs", total=2 * len(cells) * len(chosen)) as bar:
        rows = pair_rows(
            experiment,
            cells,
            seeds=chosen,
            requests=requests,
            processes=jobs_from(jobs, backend=None),
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )
    found = pair_verdicts(rows)
    title = f"with and without the flood, {policy_name}, {fairness}, {len(chosen)} seed(s)"
    if html is not None:
        write_page(pair_page(rows, found, lead=[title], command=command_line()), html)
    if as_json:
        print_json({"rows": rows, "targets": found})
        return
    console = table_console()
    console.print(pair_table(rows, title=title))
    for row in rows:
        console.print(tenants_table(row))
    console.print(verdicts_table(found))
