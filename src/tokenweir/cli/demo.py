"""``tokenweir demo``: what admission control changes, with real processes, in under two minutes."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from tokenweir.cli.options import Json, print_json, table_console
from tokenweir.study.demo.report import demo_table, next_steps, preface, verdict
from tokenweir.study.demo.run import run_demo
from tokenweir.study.demo.setup import DemoSetup, Side

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def demo(
        seconds: Annotated[float, typer.Option(help="Arrivals of one side last so long.")] = 45.0,
        as_json: Json = False,
    ) -> None:
        """Overload an emulated engine three times, without admission control and with it."""
        setup = DemoSetup(seconds=seconds)
        capacity_rps, rate_rps = setup.rates_rps()
        sys.stderr.write(preface(setup, capacity_rps=capacity_rps, rate_rps=rate_rps) + "\n")
        document, is_complete = asyncio.run(run_demo(setup, rate_rps=rate_rps, on_side=_announce))
        lines = verdict(document, setup)
        if as_json:
            print_json(document)
            sys.stderr.writelines(f"{line}\n" for line in lines)
        else:
            console = table_console()
            if any(side.name in document for side in setup.sides):
                console.print(demo_table(document))
            for line in (*lines, "", next_steps()):
                console.print(line, soft_wrap=True)
        if not is_complete:
            raise typer.Exit(130)
        if document["ledger_after"] != 0 or any(document[s.name]["is_void"] for s in setup.sides):
            raise typer.Exit(1)


def _announce(side: Side) -> None:
    sys.stderr.write(f"running {side.name} admission\n")
    sys.stderr.flush()
