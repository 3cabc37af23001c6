"""Which commands are there? Each module of ``COMMANDS`` adds its own in ``register``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import typer

__all__ = ["COMMANDS", "build_app"]

# In the order in which --help lists them, with what it says of each, word for word what the command
# says of itself: so it need not import them.
COMMANDS: Mapping[str, str] = MappingProxyType({
    "serve": "Forward OpenAI requests to a pool of engines, and admit, queue or refuse them.",
    "check": "Check a settings file, keys included, and print every setting that holds.",
    "demo": "Overload an emulated engine three times, without admission control and with it.",
    "engine": "Serve an emulated engine: OpenAI paths, vLLM's metrics, KV pool and preemption.",
    "load": "Replay a trace over HTTP with real text; clients give up and retry as the SDKs do.",
    "simulate": "Simulate a policy on an engine.",
    "replay": "Replay a trace under a policy at a multiple of the engine's capacity.",
    "profile": "Engine profiles: how fast, and how much they hold.",
    "bound": "Print the most goodput that anybody could have had who knew every length beforehand.",
    "sweep": "Measure goodput of policies over loads, seeds, profiles and traces.",
    "compare": "Run two policies on common random numbers: paired differences with 95 % intervals.",
    "hysteresis": "Lead load up and down: the goodput that is missing on the way down is the area.",
    "storm": "Measure retries after a spike: paced, told the wait alone, and not there at all.",
    "arena": "Replay a 27-tenant chat arena, and compare rows of fairness with measured ones.",
    "flood": "What one tenant's flood costs its neighbours.",
    "tune": "Tune a policy's settings on one part of a trace, and judge them on the rest.",
})
_NO_COMMAND: tuple[list[str], ...] = ([], ["--help"], ["--version"])


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
            # Brings a parser of mail along, and nobody else asks for it.
            from importlib import metadata

            sys.stdout.write(f"tokenweir {metadata.version('tokenweir')}\n")
            raise typer.Exit

    arguments = sys.argv[1:]
    if arguments in _NO_COMMAND:
        for name, says in COMMANDS.items():
            app.command(name, help=says)(_listed)
        return app
    asked = arguments[:1]
    for name in asked if asked[0] in COMMANDS else COMMANDS:
        importlib.import_module(f"tokenweir.cli.{name}").register(app)
    return app


def _listed() -> None:
    """Stand for a command that is listed and cannot be meant."""
