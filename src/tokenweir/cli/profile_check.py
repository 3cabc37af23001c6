"""``tokenweir profile check`` and ``reality``: the simulator beside what real engines did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenweir.cli.options import Json, print_json, progress, table_console
from tokenweir.core.units import NS_PER_MS
from tokenweir.profiles import PROFILE_NAMES, profile

__all__ = ["check", "reality"]


def check(
    name: Annotated[
        str, typer.Argument(help=f"{', '.join(PROFILE_NAMES)}, or a file.", metavar="PROFILE")
    ],
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder with requests.jsonl and timeseries.csv of a run.", metavar="RUN"
        ),
    ],
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Also find what to add to each step to drain alike.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate a run that was measured on a real engine, and compare."""
    from tokenweir.study.reality.check import deviations, overhead_for, simulated
    from tokenweir.study.reality.protocol import RUN_ALLOWED
    from tokenweir.study.reality.report import deviations_rows, deviations_table
    from tokenweir.study.reality.runs import read_run

    engine, measured = profile(name), read_run(run)
    figures, record = simulated(measured, engine)
    rows = deviations(measured.figures, figures, allowed=RUN_ALLOWED)
    overhead_ms = overhead_for(measured, engine) / NS_PER_MS if overhead else None
    if as_json:
        document = {
            "profile": engine.name,
            "run": measured.name,
            "figures": deviations_rows(rows),
            "preemptions": record.preemptions,
        }
        if overhead_ms is not None:
            document["step_overhead_ms"] = round(overhead_ms, 6)
        print_json(document)
        return
    console = table_console()
    title = f"{measured.name} on {engine.name}: {len(measured.arrivals):,} requests, policy none"
    console.print(deviations_table(rows, title=title))
    if overhead_ms is not None:
        console.print(f"{overhead_ms:.2f} ms more in each step would drain it when it did")


def reality(as_json: Json = False) -> None:
    """Compare simulated engines with measurements that no profile was fitted to."""
    from tokenweir.study.fitting.report import errors_table
    from tokenweir.study.reality.protocol import CURVE_ALLOWED, FITTED, TESTED
    from tokenweir.study.reality.protocol import reality as go_through
    from tokenweir.study.reality.report import deviations_table, reality_document

    with progress("stages", total=3) as bar:
        found = go_through(on_stage=lambda: bar.advance(bar.task_ids[0]))
    if as_json:
        print_json(reality_document(found))
        return
    console = table_console()
    constant = f"{found.overhead_ns / NS_PER_MS:.2f} ms a step"
    console.print(
        deviations_table(
            found.fitted,
            title=f"{FITTED.run}: kernel timings and {constant}, fitted to when it drained",
        )
    )
    console.print(
        deviations_table(
            found.tested,
            title=f"{TESTED.run}: its own kernel timings and the same constant, nothing fitted",
        )
    )
    console.print(
        errors_table(
            (found.values, found.contexts),
            title=f"H200 decode curve, promised p90 of values left out {CURVE_ALLOWED:.0%}",
        )
    )
    console.print(
        "everything promised is met" if found.is_met else "NOT everything promised is met"
    )
