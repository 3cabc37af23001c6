"""The command line: composes the other packages into commands."""

import argparse
from importlib.metadata import version

__all__ = ["main"]


def main() -> None:
    """Answer ``--version`` and ``--help``."""
    parser = argparse.ArgumentParser(prog="tokenweir", description=__doc__)
    parser.add_argument("--version", action="version", version=version("tokenweir"))
    parser.parse_args()
    parser.print_help()
