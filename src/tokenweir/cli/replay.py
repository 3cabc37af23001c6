"""``tokenweir replay``: a trace against one or more policies, in the simulator."""

from __future__ import annotations

import dataclasses
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
from tokenweir.core.policy import DEFAULT_POLICY, POLICIES
from tokenweir.core.profile import PROFILES
from tokenweir.study.plan import (
    DECLARATION_NAMES,
    DISCIPLINE_NAMES,
    RETRY_NAMES,
    TRACE_NAMES,
    Slo,
    Wishes,
    experiment_from,
    policies_from,
    surge_from,
    trace_from,
)

__all__ = ["register", "replay"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    file: Annotated[
        str, typer.Argument(help=f"A trace, or {', '.join(TRACE_NAMES)}.", metavar="FILE")
    ],
    policy: Annotated[
        str, typer.Option(help=f"all, or comma-separated: {', '.join(POLICIES)}.")
    ] = DEFAULT_POLICY,
    load: Annotated[float, typer.Option(help="Mean rate as a multiple of capacity.")] = 1.0,
    profile: Annotated[str, typer.Option(help=f"One of: {', '.join(PROFILES)}.")] = "article",
    requests: Annotated[int | None, typer.Option(help="Only the first N.")] = None,
    step: Annotated[str | None, typer.Option(help="Sudden step, as in 3x@30s.")] = None,
    queue: Annotated[
        str, typer.Option(help=f"The engine's own line: {', '.join(DISCIPLINE_NAMES)}.")
    ] = "fifo",
    declared: Annotated[
        str, typer.Option(help=f"Declared maximum: {', '.join(DECLARATION_NAMES)}.")
    ] = "mix",
    wait_items: Annotated[int, typer.Option(help="Requests that may wait before it.")] = 1_000,
    wait: Annotated[str, typer.Option(help="Longest wait before it.")] = "5s",
    retry: Annotated[str, typer.Option(help=f"Clients: {', '.join(RETRY_NAMES)}.")] = "none",
    retries: Annotated[int, typer.Option(help="Attempts after the first.")] = 2,
    timeout: Annotated[
        str | None, typer.Option(help="Clients give up without a first token, as in 10s.")
    ] = None,
    slo_ttft: Annotated[str, typer.Option(help="Bound on TTFT.")] = "1s",
    slo_tpot: Annotated[str, typer.Option(help="Bound on TPOT.")] = "80ms",
    slo_unloaded: Annotated[
        float, typer.Option(help="Or so many times the TTFT of an idle engine, if that is more.")
    ] = 0.0,
    drain: Annotated[bool, typer.Option("--drain/--cut", help="Serve what is open.")] = True,
    seeds: Annotated[int, typer.Option(help="Average over seeds 1 to N.")] = 1,
    bound: Annotated[
        bool, typer.Option("--bound", help="Print efficiency: goodput / clairvoyant bound.")
    ] = False,
    checks: Annotated[bool, typer.Option(help="Recount the accounts every second.")] = True,
    as_json: Json = False,
) -> None:
    """Replay a trace under a policy at a multiple of the engine's capacity."""
    from tokenweir.study.replay import prepared, replay_rows
    from tokenweir.study.tables import buckets_table, runs_table

    policies, chosen = policies_from(policy), seeds_of(seeds)
    experiment = experiment_from(
        Wishes(
            profile=profile,
            queue=queue,
            declared=declared,
            retry=retry,
            retries=retries,
            timeout_ns=None if timeout is None else duration(timeout, option="--timeout"),
            wait_items=wait_items,
            wait_ns=duration(wait, option="--wait"),
            slo=Slo(
                duration(slo_ttft, option="--slo-ttft"),
                duration(slo_tpot, option="--slo-tpot"),
                slo_unloaded,
            ),
            drains=drain,
            checks=checks,
        )
    )
    ready = prepared(
        trace_from(file), experiment, load=load, requests=requests, surge=surge_from(step)
    )
    yardstick = None
    if bound:
        from tokenweir.study.bound.efficiency import yardstick_for

        with progress("bounds", total=2) as bar:
            yardstick = yardstick_for(
                dataclasses.replace(experiment, arrivals=ready.arrivals),
                on_figure=lambda: bar.advance(bar.task_ids[0]),
            )
    collect_seldom()
    with progress("runs", total=len(policies) * len(chosen)) as bar:
        rows = replay_rows(
            ready,
            experiment,
            policies=policies,
            seeds=chosen,
            yardstick=yardstick,
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )
    if as_json:
        print_json({"rows": rows})
        return
    console = table_console()
    title = (
        f"{file} on {profile}: {len(ready.arrivals):,} requests at {load:g} x capacity "
        f"({ready.capacity_rps:.2f} requests/s), declared {declared}"
    )
    console.print(runs_table(rows, title=title))
    console.print(buckets_table(rows))
    if yardstick is not None:
        from tokenweir.study.bound.tables import efficiency_table, tenants_table

        console.print(efficiency_table(rows))
        if "tenants" in rows[0]["ours"]:
            console.print(tenants_table(rows))
