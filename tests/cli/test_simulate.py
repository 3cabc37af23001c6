"""simulate and replay as a user runs them: processes, output, errors in one line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.cli.command import assert_one_line, run
from tests.contract import ROW_FIGURES
from tokenweir.cli.app import COMMANDS


def test_simulate_article_when_run_twice_then_the_bytes_are_equal() -> None:
    """Same seed, same bytes of JSON."""
    first, second = (run("simulate", "article", "--no-flaws", "--json") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    rows = json.loads(first.stdout)["rows"]
    assert all(set(row["ours"]) >= ROW_FIGURES for row in rows)


def test_simulate_article_when_seeds_share_processes_then_the_result_is_the_same() -> None:
    """Two seeds in parallel give the mean of each alone."""
    both = json.loads(run("simulate", "article", "--seeds", "2", "--no-flaws", "--json").stdout)
    from tokenweir.study.article.rows import article_rows

    assert both["rows"] == json.loads(json.dumps(article_rows(seeds=[1, 2], processes=1)))


def test_simulate_article_when_a_person_runs_it_then_published_and_ours_are_shown() -> None:
    """The table has each figure as published, ours and the deviation."""
    done = run("simulate", "article", "--no-flaws", "--no-checks")
    assert done.returncode == 0, done.stderr
    for word in ("published", "ours", "deviation", "hard_gate", "first_fit", "Retry storm"):
        assert word in done.stdout


@pytest.mark.parametrize(
    "trace", ["azure-conv", "mooncake-conv", "servegen-cheap", "servegen-costly", "article-lengths"]
)
def test_replay_when_trace_is_known_then_rows_have_the_contract_fields(trace: str) -> None:
    """Each bundled trace replays at a load, with two policies on the same requests."""
    done = run(
        "replay", trace, "--policy", "token,none", "--load", "1.5", "--requests", "400", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["policy"] for row in rows] == ["token", "none"]
    for row in rows:
        assert row["group"] == "trace"
        assert row["load"] == 1.5
        assert set(row["ours"]) >= ROW_FIGURES
        assert row["ours"]["unique"] == 400
        assert row["series"]


def test_replay_when_step_comes_then_the_second_part_arrives_faster() -> None:
    """A step of 4x at 10 s more than doubles the rate after it."""
    arguments = ("replay", "article-lengths", "--load", "0.5", "--requests", "1500", "--json")
    row = json.loads(run(*arguments, "--step", "4x@10s").stdout)["rows"][0]
    arrivals = [second["arrivals"] for second in row["series"]]
    assert sum(arrivals[11:19]) > 2 * sum(arrivals[1:9])


def test_replay_when_a_person_runs_it_then_capacity_and_buckets_are_shown() -> None:
    """The table says what the load is measured in, and how each prompt size fared."""
    done = run("simulate", "run", "azure-conv", "--policy", "all", "--requests", "300")
    assert done.returncode == 0, done.stderr
    assert "x capacity" in done.stdout
    assert "by prompt tokens" in done.stdout
    assert "hard_gate" in done.stdout


def test_replay_when_there_is_a_prefix_cache_then_what_it_spared_is_told() -> None:
    """Two engines, each with its own row, their cache, and the discount that can be left out."""
    command = ("replay", "agentic-coding", "--profile", "8b-h100", "--requests", "80")
    done = run(*command, "--prefix-cache", "--replicas", "2", "--bound")
    assert done.returncode == 0, done.stderr
    for word in ("Prefix cache", "By replica", "replica-1", "recomputed"):
        assert word in done.stdout
    rows = [
        json.loads(run(*command, *more, "--json").stdout)["rows"][0]
        for more in (("--kv-blocks",), ("--prefix-cache",), ("--prefix-cache", "--no-discount"))
    ]
    blocks, cached, undiscounted = rows
    assert "prefix_cache" not in blocks["ours"]
    assert cached["ours"]["prefix_cache"]["hit_fraction"] > 0.5
    # What need not be read is no work, so the same engine can take more of these requests.
    assert cached["capacity_rps"] > 1.5 * blocks["capacity_rps"]
    assert cached["capacity_rps"] == undiscounted["capacity_rps"]
    assert cached["ours"]["goodput_unique"] > undiscounted["ours"]["goodput_unique"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("replay", "azure-conv", "--policy", "magic"), "none, concurrency, aimd"),
        (("replay", "nowhere.csv"), "nowhere.csv"),
        (("replay", "azure-conv", "--load", "0"), "--load 0"),
        (("replay", "azure-conv", "--load", "nan"), "--load nan"),
        (("replay", "azure-conv", "--profile", "gpu"), "article"),
        (("replay", "azure-conv", "--declared", "much"), "exact, x2, 4096, mix, unset"),
        (("replay", "azure-conv", "--queue", "lifo"), "fifo, first_fit"),
        (("replay", "azure-conv", "--ordering", "lifo"), "shortest_with_ageing"),
        (("replay", "azure-conv", "--fairness", "none"), "vtc, sfq, round_robin, fcfs"),
        (("replay", "azure-conv", "--retry", "often"), "none, fixed, exponential, obey"),
        (("replay", "azure-conv", "--replicas", "0"), "--replicas 0"),
        (("replay", "azure-conv", "--step", "soon"), "3x@30s"),
        (("replay", "azure-conv", "--timeout", "1"), "--timeout"),
        (("replay", "azure-conv", "--wait", "0s"), "--wait"),
        (("replay", "azure-conv", "--requests", "1"), "--requests 1"),
        (("replay", "azure-conv", "--wait-items", "-1"), "items_max -1"),
        (("replay", "azure-conv", "--load", "inf"), "allowed: 0.001 to 1,000"),
        (("replay", "azure-conv", "--load", "1e-300"), "allowed: 0.001 to 1,000"),
        (("replay", "azure-conv", "--load", "0.001"), "spread over 184 h, allowed: up to 168 h"),
        (("replay", "azure-conv", "--step", "0.001x@0s"), "allowed: up to 168 h"),
        (("replay", "azure-conv", "--step", f"{'9' * 400}x@0s"), "3x@30s"),
        (("replay", "azure-conv", "--retry", "fixed", "--retries", "1000000000"), "0 to 20"),
        (("replay", "azure-conv", "--seeds", "1000000000000"), "allowed: 1 to 1,000"),
        (("simulate", "article", "--seeds", "0"), "--seeds 0"),
    ],
)
def test_command_when_a_word_is_wrong_then_one_line_says_what_is_allowed(
    arguments: tuple[str, ...], expected: str
) -> None:
    """Exit code 2, one line, no traceback."""
    assert_one_line(run(*arguments), expected)


def test_replay_when_a_line_is_broken_then_file_and_line_are_named(tmp_path: Path) -> None:
    """The error names file, line and what was expected."""
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,tenant,prompt_tokens,output_tokens\n0.0,a,1,1\n0.1,a,one,1\n")
    done = run("replay", str(trace))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "mine.csv:3" in line
    assert "expected SECONDS,TENANT,PROMPT,OUTPUT" in line


def test_replay_when_all_arrive_at_once_then_the_rate_cannot_be_scaled(tmp_path: Path) -> None:
    """A trace without length in time is refused with its reason."""
    trace = tmp_path / "burst.csv"
    trace.write_text("arrival_s,tenant,prompt_tokens,output_tokens\n0.0,a,1,1\n0.0,a,1,1\n")
    assert "arrive at once" in run("replay", str(trace)).stderr


def test_profile_list_when_asked_then_every_profile_has_its_source() -> None:
    """Each row names the engine and where its numbers come from."""
    rows = json.loads(run("profile", "list", "--json").stdout)["profiles"]
    assert {"article", "8b-a100", "8b-h100", "70b-4xh100"} <= {row["name"] for row in rows}
    assert all(row["source"] for row in rows)
    assert "70b-4xh100" in run("profile", "list").stdout


def test_version_when_asked_then_is_printed_and_nothing_else() -> None:
    """A bug report can say which one it is."""
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("tokenweir ")
    assert run("replay", "--help").returncode == 0


def test_help_when_no_command_is_asked_for_then_says_of_each_what_it_says_itself() -> None:
    """The list is made without importing the commands, and is right all the same."""
    for name, says in COMMANDS.items():
        app = typer.Typer()
        importlib.import_module(f"tokenweir.cli.{name}").register(app)
        (command,) = typer.main.get_group(app).commands.values()
        assert command.name == name
        assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == says


def test_help_when_no_command_is_asked_for_then_imports_none() -> None:
    """It answers at once: neither numpy nor a server is there for a list."""
    code = (
        "import sys; sys.argv = ['tokenweir']; from tokenweir.cli.app import build_app; "
        "build_app(); assert not {'numpy', 'aiohttp', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert run("--help").stdout.count("Replay a trace under a policy") == 1
