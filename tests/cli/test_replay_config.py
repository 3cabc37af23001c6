"""Replaying a trace with a gateway's own settings file, as a user does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import assert_one_line, run

REPLAY = ("replay", "servegen-cheap", "--load", "1.5", "--requests", "2000")
POOL = """
pools:
  - profile: 8b-a100
    first_token_slo: 2s
    replicas: [{url: "http://127.0.0.1:8000"}]
"""
TENANTS = """
tenants:
  - {name: c116, keys: [{env: KEY_THAT_IS_NOT_HERE}], weight: 8.0}
  - {name: nobody, keys: [{env: ANOTHER_KEY_THAT_IS_NOT_HERE}]}
"""


def written(tmp_path: Path, text: str) -> str:
    """Write a settings file."""
    path = tmp_path / "weir.yaml"
    path.write_text(text)
    return str(path)


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    """Run and read the rows."""
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def test_replay_when_a_tenant_has_weight_in_the_file_then_it_gets_more(tmp_path: Path) -> None:
    """The heaviest sender, beside the same file without its weight."""
    served = {}
    for weight in ("8.0", "1.0"):
        path = written(tmp_path, POOL + TENANTS.replace("8.0", weight))
        (row,) = rows_of(*REPLAY, "--config", path)
        assert row["policy"] == "predictive"
        served[weight] = row["ours"]["tenants"]["c116"]["goodput_unique"]
    assert served["8.0"] > served["1.0"]


def test_replay_when_options_are_given_besides_then_they_win(tmp_path: Path) -> None:
    """Two policies on the same requests, another engine."""
    path = written(tmp_path, POOL + TENANTS)
    options = ("--policy", "predictive,none", "--profile", "8b-h100")
    mine = rows_of(*REPLAY, "--config", path)
    both = rows_of(*REPLAY, "--config", path, *options)
    assert [row["policy"] for row in both] == ["predictive", "none"]
    assert both[0]["capacity_rps"] > mine[0]["capacity_rps"]


def test_replay_when_a_person_runs_it_then_tenants_are_listed(tmp_path: Path) -> None:
    """How many the file names, and what each got."""
    done = run(*REPLAY, "--config", written(tmp_path, POOL + TENANTS))
    assert done.returncode == 0, done.stderr
    for word in (
        "on 8b-a100",
        "1 of ",
        "tenants are named in",
        "weir.yaml",
        "Goodput by tenant",
        "c116",
    ):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (POOL + "speed: 3\n", (), "weir.yaml: speed is an unknown key"),
        (POOL.replace("8b-a100", "gpu"), (), "weir.yaml: pools[0].profile"),
        (POOL.replace("profile: 8b-a100", "name: a"), (), "--profile"),
        (POOL, ("--pool", "other"), "pools of"),
    ],
)
def test_replay_when_the_file_is_wrong_then_one_line_says_where(
    tmp_path: Path, text: str, options: tuple[str, ...], expected: str
) -> None:
    """Exit code 2, as for any other mistake."""
    assert_one_line(run(*REPLAY, "--config", written(tmp_path, text), *options), expected)


def test_replay_when_a_pool_is_named_without_a_file_then_it_is_refused() -> None:
    """It would have no effect."""
    assert_one_line(run(*REPLAY, "--pool", "a"), "beside --config")
