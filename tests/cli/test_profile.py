"""profile list and show as a user runs them, and a profile's file in the place of its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import run
from tokenweir.profiles import PROFILE_NAMES
from tokenweir.profiles.loading import profile_path


def test_list_when_asked_for_then_shows_every_profile_with_its_source() -> None:
    """The JSON has the same profiles as the table, field by field."""
    table, document = run("profile", "list"), json.loads(run("profile", "list", "--json").stdout)
    rows = document["profiles"]
    assert [row["name"] for row in rows] == list(PROFILE_NAMES)
    assert all(row["name"] in table.stdout and row["source"] for row in rows)


@pytest.mark.parametrize("name", ["8b-h100", str(profile_path("8b-h100"))])
def test_show_when_given_a_name_or_its_file_then_prints_the_same(name: str) -> None:
    """A profile in full: its numbers, and what they come to."""
    done = run("profile", "show", name)
    assert done.returncode == 0, done.stderr
    for text in ("kv_tokens", "421,000", "First token of an idle engine", "227.9"):
        assert text in done.stdout
    assert json.loads(run("profile", "show", name, "--json").stdout)["profile"]["name"] == "8b-h100"


def test_replay_when_profile_is_a_file_then_rows_are_those_of_its_name() -> None:
    """Whoever copies a profile and changes nothing gets the same figures."""
    runs = [
        run("replay", "azure-conv", "--requests", "100", "--profile", engine, "--json")
        for engine in ("8b-a100", str(profile_path("8b-a100")))
    ]
    assert runs[0].stdout == runs[1].stdout
    assert json.loads(runs[0].stdout)["rows"]


@pytest.mark.parametrize(
    "command",
    [
        ("profile", "show", "abacus"),
        ("replay", "azure-conv", "--profile", "abacus"),
        ("bound", "azure-conv", "--profile", "abacus"),
        ("engine", "--profile", "abacus"),
        ("serve", "--upstream", "http://127.0.0.1:1", "--profile", "abacus"),
        ("load", "azure-conv", "--url", "http://127.0.0.1:1", "--load", "1", "--profile", "abacus"),
    ],
    ids=lambda command: command[0],
)
def test_command_when_profile_is_unknown_then_one_line_says_what_is_allowed(
    command: tuple[str, ...],
) -> None:
    """Everywhere the same mistake ends the same way."""
    done = run(*command)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "unknown profile 'abacus', allowed: 70b-4xh100, " in done.stderr


def test_command_when_profile_file_is_wrong_then_one_line_says_where(tmp_path: Path) -> None:
    """The file, the key, the value and what is allowed."""
    path = tmp_path / "mine.toml"
    path.write_text(profile_path("article").read_text().replace("90_000", "0"))
    done = run("replay", "azure-conv", "--profile", str(path))
    assert done.returncode == 2
    assert done.stderr == (f"tokenweir: {path}: kv_tokens 0 is not allowed, allowed: 1 or more\n")


def test_fit_when_written_to_a_file_then_the_file_is_a_profile(tmp_path: Path) -> None:
    """What is fitted can be used at once, and says how good it is and what it rests on."""
    from tokenweir.sim.traces import bundled

    out = tmp_path / "mine.toml"
    curves = str(bundled("h200-llama8b-fp8-profile/decode_itl.csv"))
    done = run("profile", "fit", curves, "--name", "mine", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [error["curve"] for error in document["errors"]] == ["decode pace"]
    assert document["borrowed"] == ["attention_ns"]
    shown = json.loads(run("profile", "show", str(out), "--json").stdout)["profile"]
    assert shown == document["profile"]
    assert "median" in shown["source"]
    assert "attention_ns not measured here, taken from 8b-h100" in shown["source"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "tp"), "--where 'tp' is not allowed, allowed: COLUMN=VALUE"),
        (("--like", "abacus"), "unknown profile 'abacus', allowed: "),
        (("--step-overhead", "2"), "--step-overhead '2' is not allowed, allowed: "),
        (("--kv-tokens", "0"), "kv_tokens 0 is not allowed, allowed: 1 or more"),
        (("--out", "/nowhere/at/all.toml"), "cannot write profile /nowhere/at/all.toml: No such"),
    ],
    ids=range(5),
)
def test_fit_when_an_option_is_wrong_then_one_line_says_so(
    arguments: tuple[str, ...], message: str
) -> None:
    """What, which and what is allowed."""
    from tokenweir.sim.traces import bundled

    curves = str(bundled("h200-llama8b-fp8-profile/decode_itl.csv"))
    done = run("profile", "fit", curves, *arguments)
    assert done.returncode == 2
    # What is left of a progress bar on a pipe is an empty line.
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


def test_check_and_reality_when_run_then_documents_have_their_figures() -> None:
    """The protocol as a command; a check of any profile against any run as another."""
    from tokenweir.sim.traces import bundled

    done = run("profile", "reality", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["is_met"] is True
    folder = str(bundled("vllm-overload-runs/RTX4090_Llama-3.1-8B"))
    document = json.loads(run("profile", "check", "8b-a100", folder, "--json").stdout)
    assert [row["figure"] for row in document["figures"]][:2] == [
        "most waiting",
        "drained after, s",
    ]
    assert "drained after" in run("profile", "check", "8b-a100", folder).stdout
