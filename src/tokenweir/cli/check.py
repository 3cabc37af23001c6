"""``tokenweir check``: is a settings file right, and what holds by it?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tokenweir.cli.options import Json, print_json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    file: Annotated[Path, typer.Argument(help="Settings file.", metavar="FILE")],
    as_json: Json = False,
) -> None:
    """Check a settings file, keys included, and print every setting that holds."""
    import yaml

    from tokenweir.settings.compose import check_relations
    from tokenweir.settings.effective import effective
    from tokenweir.settings.loading import load_settings

    settings = load_settings(file)
    check_relations(settings, source=str(file))
    tree = effective(settings)
    if as_json:
        print_json(tree)
    else:
        sys.stdout.write(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
