"""Shared by all tests: the case plugin, what is not measured, and the option for golden tables."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from coverage import Coverage

pytest_plugins = ["tests.cases_report", "pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden tables; review the diff as a change of behaviour",
    )


# Where whole runs stand, and processes.
_UNMEASURED = ("cli", "sim", "study")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Take no coverage of whole simulations: measured they take two and a half times as long.

    They pass most lines a million times and judge none of them: each is to be covered by a test of
    its own part.
    """
    measuring = Coverage.current()
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if measuring is None or folder not in _UNMEASURED:
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()
