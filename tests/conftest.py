"""Shared by all tests: the conformance case plugin, and the option that rewrites golden tables."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.cases_report", "pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden tables; review the diff as a change of behaviour",
    )
