"""``tokenweir profile``: which engine profiles there are, and where their numbers come from."""

from __future__ import annotations

import dataclasses

import typer
from rich.table import Table

from tokenweir.cli.options import Json, print_json, table_console
from tokenweir.core.profile import PROFILES
from tokenweir.core.units import NS_PER_MS

__all__ = ["register"]

# One step with a full budget, and one that decodes 64 requests of 1,000 tokens of context.
_DECODING = 64
_CONTEXT_TOKENS = 1_000


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Engine profiles: how fast, and how much they hold.")
    app.add_typer(group, name="profile", no_args_is_help=True)

    # Keeps ``list`` a subcommand while it is the only one.
    @group.callback()
    def root() -> None:
        """Engine profiles: how fast, and how much they hold."""

    @group.command("list")
    def list_profiles(as_json: Json = False) -> None:
        """Print every profile with its source."""
        if as_json:
            print_json({"profiles": [dataclasses.asdict(row) for row in PROFILES.values()]})
            return
        table = Table(title="Engine profiles", title_justify="left")
        table.add_column("name", no_wrap=True)
        for heading in (
            "KV tokens",
            "seats",
            "tokens\na step",
            "full step\nms",
            "64 decoding\nms a token",
        ):
            table.add_column(heading, justify="right")
        table.add_column("source", overflow="fold")
        for row in PROFILES.values():
            full_ns = row.duration_ns(tokens=row.step_tokens_max)
            decode_ns = row.duration_ns(
                tokens=_DECODING, kv_tokens=_DECODING * _CONTEXT_TOKENS, sequences=_DECODING
            )
            table.add_row(
                row.name,
                f"{row.kv_tokens:,}",
                f"{row.sequences_max:,}",
                f"{row.step_tokens_max:,}",
                f"{full_ns / NS_PER_MS:.1f}",
                f"{decode_ns / NS_PER_MS:.1f}",
                row.source,
            )
        table_console().print(table)
