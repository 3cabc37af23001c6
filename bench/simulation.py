"""What does a simulation cost?

Rule: CPU seconds of the whole command, user and system, imports included, one after the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Figure, show

__all__ = ["COMMANDS", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, what it is called, and how many CPU seconds it may take."""

    name: str
    target_s: float
    arguments: tuple[str, ...]


COMMANDS = {
    "article": Command(
        "article, all groups, one seed, no flaws, checks off",
        3.0,
        ("simulate", "article", "--no-flaws", "--no-checks", "--json"),
    ),
    "azure": Command(
        "an hour of Azure conversations at 1.5 x on 8b-h100, predictive",
        20.0,
        (
            *("replay", "azure-conv", "--profile", "8b-h100", "--load", "1.5"),
            *("--policy", "predictive", "--no-checks", "--json"),
        ),
    ),
}


def _cpu_s(arguments: Sequence[str]) -> float:
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "tokenweir", *arguments], stdout=subprocess.DEVNULL, check=True
    )
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulation", description="See the module."
    )
    parser.add_argument("--only", choices=COMMANDS, help="one of the commands")
    parser.add_argument("--requests", type=int, help="of the trace, all where not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    chosen = {options.only: COMMANDS[options.only]} if options.only else COMMANDS
    rounds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(options.rounds):
        for name, command in chosen.items():
            more = ()
            if name == "azure" and options.requests is not None:
                more = ("--requests", str(options.requests))
            rounds[name].append(_cpu_s((*command.arguments, *more)))
    figures = [
        Figure(command.name, "s CPU", command.target_s, tuple(rounds[name]))
        for name, command in chosen.items()
    ]
    show(figures, title="simulations", as_json=options.json)


if __name__ == "__main__":
    main()
