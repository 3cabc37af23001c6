"""check as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.command import assert_one_line, run

FILE = """
pools:
  - replicas: [{url: "http://127.0.0.1:8000"}]
    classes: {P2: {ceiling: 0.5}}
tickets: {keys: [{env: CHECKED_TICKET_KEY}]}
"""
KEY = "0123456789abcdef" * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A settings file."""
    written = tmp_path / "weir.yaml"
    written.write_text(FILE)
    return written


def test_check_when_the_file_is_right_then_prints_what_holds_and_no_secret(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as YAML and as JSON, defaults included."""
    monkeypatch.setenv("CHECKED_TICKET_KEY", KEY)
    plain, as_json = run("check", str(path)), run("check", str(path), "--json")
    tree = json.loads(as_json.stdout)
    assert yaml.safe_load(plain.stdout) == tree
    (pool,) = tree["pools"]
    assert (pool["classes"]["P2"]["ceiling"], pool["classes"]["P2"]["floor"]) == (0.5, 0.05)
    assert pool["fairness"] == "vtc"
    assert tree["tickets"] == {"keys": [{"env": "CHECKED_TICKET_KEY"}]}
    assert KEY not in plain.stdout + as_json.stdout


def test_check_when_a_key_is_missing_or_a_value_wrong_then_one_line_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the environment can tell is checked too."""
    monkeypatch.delenv("CHECKED_TICKET_KEY", raising=False)
    line = f"{path}: tickets.keys[0]: environment variable CHECKED_TICKET_KEY is not set"
    assert_one_line(run("check", str(path)), line)
    path.write_text(FILE.replace("0.5", "5"))
    line = f"{path}: pools[0].classes.P2.ceiling is 5, allowed: up to 1"
    assert_one_line(run("check", str(path)), line)
