"""``tokenweir profile``: which engine profiles there are, and where their numbers come from."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from tokenweir.cli.options import Json, print_json, table_console
from tokenweir.cli.profile_check import check, reality
from tokenweir.cli.profile_fit import fit
from tokenweir.profiles import PROFILE_NAMES, profile

__all__ = ["register"]

_HELP = "Engine profiles: how fast, and how much they hold."

Name = Annotated[
    str, typer.Argument(help=f"{', '.join(PROFILE_NAMES)}, or a file.", metavar="NAME")
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help=_HELP)
    app.add_typer(group, name="profile", no_args_is_help=True)
    group.command("list")(list_profiles)
    group.command()(show)
    group.command()(fit)
    group.command()(check)
    group.command()(reality)


def list_profiles(as_json: Json = False) -> None:
    """Print every profile with its source."""
    rows = [profile(name) for name in PROFILE_NAMES]
    if as_json:
        print_json({"profiles": [dataclasses.asdict(row) for row in rows]})
        return
    from tokenweir.cli.profile_tables import profiles_table

    table_console().print(profiles_table(rows))


def show(name: Name, as_json: Json = False) -> None:
    """Print one profile: its numbers, and how long its steps take."""
    row = profile(name)
    if as_json:
        print_json({"profile": dataclasses.asdict(row)})
        return
    from tokenweir.cli.profile_tables import first_tokens_table, numbers_table, paces_table

    console = table_console()
    for table in (numbers_table(row), first_tokens_table(row), paces_table(row)):
        console.print(table)
