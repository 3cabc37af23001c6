"""``tokenweir storm``: a spike, and what the retries of those it turned away do afterwards."""

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
    Jobs,
    Profile,
    Retries,
    Retry,
    Seeds,
    SloTpot,
    SloTtft,
    Timeout,
    jobs_from,
    slo_from,
    wishes_from,
)
from tokenweir.core.policy import DEFAULT_POLICY, policy
from tokenweir.core.units import s_from_ns
from tokenweir.study.plan import experiment_from

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(storm)


def storm(
    policy_name: Annotated[str, typer.Option("--policy", help="One policy.")] = DEFAULT_POLICY,
    base: Annotated[float, typer.Option(help="Requests/s before and after.")] = 30.0,
    peak: Annotated[float, typer.Option(help="Requests/s in the spike.")] = 140.0,
    begins: Annotated[str, typer.Option(help="When the spike begins.")] = "15s",
    ends: Annotated[str, typer.Option(help="When it ends.")] = "35s",
    until: Annotated[str, typer.Option(help="When arrivals stop.")] = "2m",
    profile: Profile = "article",
    retry: Retry = "sdks",
    retries: Retries = 2,
    timeout: Timeout = None,
    declared: Declared = "mix",
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    seeds: Seeds = 3,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Measure retries after a spike: paced, told the wait alone, and not there at all."""
    from tokenweir.study.storm.run import CASES, Spike, storm_rows
    from tokenweir.study.storm.tables import storm_table, verdicts, verdicts_table

    policy(policy_name)
    chosen = seeds_of(seeds)
    times = {"begins": begins, "ends": ends, "until": until}
    spike = Spike(
        base,
        peak,
        *(s_from_ns(duration(text, option=f"--{name}")) for name, text in times.items()),
    )
    wishes = wishes_from(
        profile=profile,
        declared=declared,
        retry=retry,
        retries=retries,
        timeout=timeout,
        slo=slo_from(slo_ttft, slo_tpot, unloaded=0.0),
    )
    experiment = replace(experiment_from(wishes), policy=policy_name)
    collect_seldom()
    with progress("runs", total=len(CASES) * len(chosen)) as bar:
        rows = storm_rows(
            experiment,
            spike,
            seeds=chosen,
            processes=jobs_from(jobs, backend=None),
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )
    found = verdicts(rows)
    if as_json:
        print_json({"rows": rows, "targets": found})
        return
    console = table_console()
    title = f"{base:g}/{peak:g}/{base:g} requests/s on {profile}, {policy_name}, clients {retry}"
    console.print(storm_table(rows, title=f"{title}, mean of {len(chosen)} seeds"))
    console.print(verdicts_table(found))
