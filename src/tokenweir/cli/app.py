"""Which commands are there? Each module of ``_COMMANDS`` adds its own in ``register``."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from typing import Annotated

import typer

__all__ = ["build_app"]

# In the order in which --help lists them.
_COMMANDS = (
    *("serve", "demo", "engine", "load", "simulate", "replay", "profile", "bound"),
    *("sweep", "compare", "hysteresis", "storm", "arena", "flood", "tune"),
)


def build_app() -> typer.Typer:
    """Return the application; where one command is asked for, only its module is imported."""
    app = typer.Typer(
        name="tokenweir",
        help="Admission control and overload protection for LLM inference, in tokens.",
        no_args_is_help=True,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", is_eager=True)
        ] = False,
    ) -> None:
        """Decide from tokens, not from requests."""
        if version:
            sys.stdout.write(f"tokenweir {metadata.version('tokenweir')}\n")
            raise typer.Exit

    asked = sys.argv[1:2]
    for name in asked if asked and asked[0] in _COMMANDS else _COMMANDS:
        importlib.import_module(f"tokenweir.cli.{name}").register(app)
    return app
