"""``tokenweir replay``: a trace against one or more policies, in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    duration,
    print_json,
    processes,
    progress,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import (
    Declared,
    Discount,
    Fairness,
    File,
    KvBlocks,
    Ordering,
    PrefixCache,
    Profile,
    Queue,
    Replicas,
    Requests,
    Retries,
    Retry,
    Seeds,
    SloTpot,
    SloTtft,
    SloUnloaded,
    Step,
    Timeout,
    Wait,
    WaitItems,
    load_from,
    slo_from,
    wishes_from,
)
from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import DEFAULT_POLICY, POLICIES
from tokenweir.study.bound.efficiency import Yardstick, yardsticks_for
from tokenweir.study.experiment import Experiment
from tokenweir.study.plan import experiment_from, policies_from, surge_from
from tokenweir.study.replay import Replay, prepared_seeds, replay_rows

__all__ = ["register", "replay"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    ctx: typer.Context,
    file: File,
    policy: Annotated[
        str, typer.Option(help=f"all, or comma-separated: {', '.join(POLICIES)}.")
    ] = DEFAULT_POLICY,
    load: Annotated[
        str, typer.Option(help="Mean rate as a multiple of capacity, or recorded.")
    ] = "1",
    config: Annotated[
        Path | None,
        typer.Option(help="A gateway's settings: its pool is run; options given besides win."),
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Which one, where it has several.")] = None,
    profile: Profile = "article",
    replicas: Replicas = 1,
    kv_blocks: KvBlocks = False,
    prefix_cache: PrefixCache = False,
    discount: Discount = True,
    requests: Requests = None,
    step: Step = None,
    queue: Queue = "fifo",
    ordering: Ordering = "earliest_deadline",
    fairness: Fairness = "vtc",
    declared: Declared = "mix",
    wait_items: WaitItems = 1_000,
    wait: Wait = "5s",
    retry: Retry = "none",
    retries: Retries = 2,
    timeout: Timeout = None,
    slo_ttft: SloTtft = "1s",
    slo_tpot: SloTpot = "80ms",
    slo_unloaded: SloUnloaded = 0.0,
    drain: Annotated[bool, typer.Option("--drain/--cut", help="Serve what is open.")] = True,
    seeds: Seeds = 1,
    bound: Annotated[
        bool, typer.Option("--bound", help="Print efficiency: goodput / clairvoyant bound.")
    ] = False,
    checks: Annotated[bool, typer.Option(help="Recount the accounts every second.")] = True,
    as_json: Json = False,
) -> None:
    """Replay a trace under a policy at a multiple of the engine's capacity."""
    chosen = seeds_of(seeds)
    wishes = wishes_from(
        profile=profile,
        queue=queue,
        declared=declared,
        retry=retry,
        retries=retries,
        timeout=timeout,
        wait_items=wait_items,
        wait_ns=duration(wait, option="--wait"),
        slo=slo_from(slo_ttft, slo_tpot, unloaded=slo_unloaded),
        drains=drain,
        checks=checks,
        fairness=fairness,
        ordering=ordering,
        kv_blocks=kv_blocks,
        prefix_cache=prefix_cache,
        discount=discount,
        replicas=replicas,
    )
    policies = policies_from(policy)
    experiment = experiment_from(wishes)
    if config is not None:
        given = _given(ctx)
        experiment = _as_in(config, experiment, pool=pool, given=given)
        policies = policies if "policy" in given else [experiment.policy]
    elif pool is not None:
        raise ConfigError(f"--pool {pool!r} is not allowed, allowed: beside --config")
    ready = prepared_seeds(
        file,
        experiment,
        seeds=chosen,
        load=load_from(load),
        requests=requests,
        surge=surge_from(step),
    )
    rows = _rows(ready, experiment, policies=policies, seeds=chosen, bound=bound)
    if as_json:
        print_json({"rows": rows})
        return
    title = (
        f"{file} on {experiment.engine.name}: {len(ready[0].arrivals):,} requests at "
        f"{rows[0]['load']:.3g} x capacity ({rows[0]['capacity_rps']:.2f} requests/s), "
        f"declared {declared}"
    )
    if len(chosen) > 1:
        title += f", mean of {len(chosen)} seeds"
    if config is not None:
        title += f"; {_known(ready[0], experiment)} {config}"
    _show(rows, title=title)


def _given(ctx: typer.Context) -> set[str]:
    """Return the options that stand on the command line, by their parameters' names."""
    return {
        name
        for name in ctx.params
        if (source := ctx.get_parameter_source(name)) is not None
        and source.name not in {"DEFAULT", "DEFAULT_MAP"}
    }


def _as_in(
    config: Path, experiment: Experiment, *, pool: str | None, given: set[str]
) -> Experiment:
    """Return the experiment as a settings file has it."""
    # Brings pydantic along, which most commands do without.
    from tokenweir.study.own_pool import read_pool, with_pool

    settings, chosen = read_pool(config, name=pool)
    return with_pool(experiment, chosen, settings=settings, given=given)


def _known(ready: Replay, experiment: Experiment) -> str:
    """Say how many of a trace's tenants the file names: a misspelt one has no weight."""
    names = {arrival.tenant for arrival in ready.arrivals}
    return f"{len(names & set(experiment.terms.named))} of {len(names)} tenants are named in"


def _rows(
    ready: Sequence[Replay],
    experiment: Experiment,
    *,
    policies: Sequence[str],
    seeds: Sequence[int],
    bound: bool,
) -> list[dict[str, Any]]:
    yardsticks: list[Yardstick] = []
    if bound:
        with progress("bounds", total=2 * len(ready)) as bar:
            yardsticks = yardsticks_for(
                experiment,
                [replay.arrivals for replay in ready],
                on_figure=lambda: bar.advance(bar.task_ids[0]),
            )
    collect_seldom()
    with progress("runs", total=len(policies) * len(seeds)) as bar:
        return replay_rows(
            ready,
            experiment,
            policies=policies,
            seeds=seeds,
            yardsticks=yardsticks,
            processes=processes() if len(seeds) > 1 else 1,
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )


def _show(rows: list[dict[str, Any]], *, title: str) -> None:
    from tokenweir.study.tables import buckets_table, parts_table, runs_table, tenants_table

    console = table_console()
    console.print(runs_table(rows, title=title))
    console.print(buckets_table(rows))
    has_bound = "bound" in rows[0]["ours"]
    if "tenants" in rows[0]["ours"] and not has_bound:
        console.print(tenants_table(rows))
    for name in ("prefix_cache", "replicas"):
        if name in rows[0]["ours"]:
            console.print(parts_table(rows, name=name))
    if has_bound:
        from tokenweir.study.bound import tables as of_bounds

        console.print(of_bounds.efficiency_table(rows))
        if "tenants" in rows[0]["ours"]:
            console.print(of_bounds.tenants_table(rows))
