"""The command line: ``tokenweir COMMAND``. One file per command."""

from __future__ import annotations

import sys

from tokenweir.core.errors import TokenweirError

__all__ = ["main"]


def main() -> None:
    """Run a command; a mistake of the user's ends in one line and exit code 2."""
    from tokenweir.cli.app import build_app

    try:
        build_app()()
    except TokenweirError as error:
        sys.stderr.write(f"tokenweir: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)
