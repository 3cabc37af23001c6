"""A gateway's settings file, in the simulator."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.cost import Predicted
from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import LengthConfig
from tokenweir.core.policy import Policy
from tokenweir.core.request import Priority
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.profiles import profile
from tokenweir.settings.compose import admitter_config, pool_policy
from tokenweir.sim.results import Slo
from tokenweir.sim.terms import Terms
from tokenweir.sim.traces import Arrival
from tokenweir.study.experiment import Experiment, admitter_of, run_experiment
from tokenweir.study.own_pool import OPTIONS, read_pool, with_pool
from tokenweir.study.replay import Replay, replay_rows

URLS = ("http://127.0.0.1:8000", "http://127.0.0.1:8001")
POOL: dict[str, Any] = {
    "replicas": [{"url": url} for url in URLS],
    "profile": "8b-a100",
    "first_token_slo": "2s",
    "fairness": "sfq",
    "ordering": "fifo",
    "queue": {"items": 7, "wait": "3s"},
    "classes": {"P2": {"ceiling": 0.5, "wait": "9s"}},
}
TENANTS: list[dict[str, Any]] = [
    {"name": "gold", "keys": [{"env": "NOT_SET_HERE"}], "weight": 4.0, "concurrency": 3},
    {
        "name": "crawler",
        "keys": [{"file": "/nowhere/at/all"}],
        "default_class": "P2",
        "wait": "1s",
        "length_mode": "declared",
    },
]


def written(tmp_path: Path, **tree: Any) -> Path:
    """Write a settings file."""
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps({"pools": [POOL], "tenants": TENANTS, **tree}))
    return path


def _length_mode(policy: Policy) -> str | None:
    return policy.cost.lengths.config.mode if isinstance(policy.cost, Predicted) else None


def _by_default(policy: Policy) -> str | None:
    return LengthConfig().mode if isinstance(policy.cost, Predicted) else None


def experiment_of(
    path: Path, *, given: Collection[str] = (), name: str | None = None, **changes: Any
) -> Experiment:
    """Return what a file says, put over the defaults of a replay."""
    settings, pool = read_pool(path, name=name)
    experiment = replace(Experiment(policy="none"), **changes)
    return with_pool(experiment, pool, settings=settings, given=given)


@pytest.mark.parametrize("paced", [True, False])
def test_pool_when_simulated_then_its_admitter_is_set_as_the_gateway_sets_it(
    tmp_path: Path, *, paced: bool
) -> None:
    """All but what the simulator knows exactly: leases, and what telemetry is worth."""
    path = written(tmp_path, pools=[{**POOL, "paced_returns": paced}])
    settings, pool = read_pool(path, name=None)
    experiment = experiment_of(path, returns=None if paced else ReturnConfig())
    ours = admitter_of(experiment, seed=1).config
    theirs = admitter_config(pool, tenants=settings.tenants)
    exact = {
        "ledger": ours.ledger,
        "calibration": ours.calibration,
        "rate_hint_tokens_per_s": ours.rate_hint_tokens_per_s,
    }
    assert ours == replace(theirs, **exact)
    assert (experiment.policy, experiment.replicas) == ("predictive", 2)
    assert experiment.engine == profile("8b-a100")
    assert experiment.slo.ttft_ns == 2 * NS_PER_S


@pytest.mark.parametrize(
    "words",
    [
        {"policy": "predictive", "length_mode": "declared"},
        {"policy": "predictive"},
        {"policy": "aimd", "concurrency": 9},
        {"policy": "concurrency"},
        {"policy": "token_amort"},
    ],
)
def test_policy_when_in_the_file_then_is_the_gateways_and_others_can_be_compared(
    tmp_path: Path, words: dict[str, Any]
) -> None:
    """With its limit and its length mode, which another policy would not take."""
    path = written(tmp_path, pools=[{**POOL, **words}], tenants=[])
    _, pool = read_pool(path, name=None)
    experiment = experiment_of(path, drains=True)
    ours, theirs = admitter_of(experiment, seed=1).policy, pool_policy(pool)
    assert (ours.name, ours.capacity) == (theirs.name, theirs.capacity)
    assert _length_mode(ours) == _length_mode(theirs) == words.get("length_mode", _by_default(ours))
    arrivals = (Arrival(0, 10, 10), Arrival(1, 10, 10))
    rows = replay_rows(
        [Replay(arrivals, 1.0, 1.0)], experiment, policies=[pool.policy, "ledger"], seeds=[1]
    )
    assert [row["ours"]["completed"] for row in rows] == [2, 2]


def test_tenants_when_in_the_file_then_their_requests_carry_what_a_gateway_gives_them(
    tmp_path: Path,
) -> None:
    """Class, wait and length mode; who is not named is the default tenant."""
    terms = experiment_of(written(tmp_path)).terms
    assert terms.of("gold") == Terms("gold")
    assert terms.of("crawler") == Terms("crawler", Priority.P2, NS_PER_S, "declared")
    assert terms.of("stranger") == Terms("default")
    named = experiment_of(
        written(tmp_path, tenants=[{"name": "default", "default_class": "P3"}])
    ).terms
    assert named.of("stranger") == Terms("default", Priority.P3)


@pytest.mark.parametrize("option", OPTIONS)
def test_option_when_given_then_goes_before_the_file(tmp_path: Path, option: str) -> None:
    """Each one alone; all else stays as the file says."""
    mine = Experiment(
        policy="none",
        engine=profile("8b-h100"),
        replicas=5,
        fairness="fcfs",
        ordering="shortest_with_ageing",
        slo=Slo(ttft_ns=700 * NS_PER_MS),
    )
    mine = replace(mine, queue=replace(mine.queue, items_max=11, wait_ns_max=400 * NS_PER_MS))
    path = written(tmp_path)
    without = experiment_of(path)
    settings, pool = read_pool(path, name=None)
    got = with_pool(mine, pool, settings=settings, given={option})
    expected = {
        "policy": without,  # replay runs the policies that were asked for, one after the other
        "profile": replace(without, engine=mine.engine),
        "replicas": replace(without, replicas=5),
        "fairness": replace(without, fairness="fcfs"),
        "ordering": replace(without, ordering="shortest_with_ageing"),
        "slo_ttft": replace(without, slo=mine.slo),
        "wait": replace(without, queue=replace(without.queue, wait_ns_max=400 * NS_PER_MS)),
        "wait_items": replace(without, queue=replace(without.queue, items_max=11)),
    }
    assert got == expected[option]


def test_limit_when_another_policy_is_compared_then_it_holds_for_its_own_alone(
    tmp_path: Path,
) -> None:
    """One place at once for concurrency; token has no use for that."""
    pool = {**POOL, "policy": "concurrency", "concurrency": 1, "queue": {"items": 0}}
    experiment = experiment_of(written(tmp_path, pools=[pool], tenants=[]))
    assert experiment.capacity == Concurrency(in_flight_max=1)
    arrivals = tuple(Arrival(n, 10, 10) for n in range(4))
    rows = replay_rows(
        [Replay(arrivals, 1.0, 1.0)],
        replace(experiment, arrivals=arrivals, replicas=1, drains=True),
        policies=["concurrency", "token"],
        seeds=[1],
    )
    assert [row["ours"]["refused"] for row in rows] == [3, 0]


@pytest.mark.parametrize("told", [1, 2])
def test_engines_when_their_size_is_in_the_file_then_it_is_theirs(
    tmp_path: Path, *, told: int
) -> None:
    """What is known of one of the machines goes before the profile."""
    replicas = [
        {"url": url, **({"kv_tokens": "5k"} if number < told else {})}
        for number, url in enumerate(URLS)
    ]
    experiment = experiment_of(written(tmp_path, pools=[{**POOL, "replicas": replicas}]))
    assert experiment.engine == replace(profile("8b-a100"), kv_tokens=5_000)


def test_profile_when_the_gateway_is_not_told_then_neither_is_the_policy(tmp_path: Path) -> None:
    """The engine is as fast as the option says, and the policy has to find out."""
    pool = {key: value for key, value in POOL.items() if key != "profile"}
    path = written(tmp_path, pools=[pool])
    with pytest.raises(ConfigError, match=r"pool 'default' has no profile.*--profile"):
        experiment_of(path)
    experiment = experiment_of(path, given={"profile"}, engine=profile("8b-h100"))
    assert experiment.engine == profile("8b-h100")
    assert not experiment.tells_profile
    arrivals = (Arrival(0, 10, 10),)
    told = {}
    for tells in (True, False):
        run = replace(experiment, arrivals=arrivals, tells_profile=tells, drains=True)
        admitter = admitter_of(run, seed=1)
        told[tells] = admitter.config.rate_hint_tokens_per_s
        assert len(run_experiment(run, seed=1).attempts) == 1
    assert told[False] is None
    assert told[True] == 2 * profile("8b-h100").tokens_per_s


@pytest.mark.parametrize(
    ("tree", "name", "expected"),
    [
        ({"pools": [{**POOL, "fairness": "luck"}]}, None, r"weir.yaml: pools\[0\].fairness"),
        ({"pools": [{**POOL, "policy": "magic"}]}, None, r"weir.yaml: pools\[0\].policy"),
        ({}, "other", r"--pool 'other' is not allowed, pools of .*weir.yaml: default"),
        (
            {"pools": [{**POOL, "name": "a"}, {**POOL, "name": "b"}], "routes": [{"pool": "a"}]},
            None,
            r"--pool is missing, pools of .*weir.yaml: a, b",
        ),
        (
            {
                "pools": [
                    {
                        **POOL,
                        "replicas": [
                            {"url": URLS[0], "kv_tokens": 9},
                            {"url": URLS[1], "kv_tokens": 8},
                        ],
                    }
                ]
            },
            None,
            "differ in kv_tokens",
        ),
    ],
)
def test_file_when_it_cannot_be_simulated_then_one_line_says_why(
    tmp_path: Path, tree: dict[str, Any], name: str | None, expected: str
) -> None:
    """Where, what, and what is allowed."""
    with pytest.raises(ConfigError, match=expected) as caught:
        experiment_of(written(tmp_path, **tree), name=name)
    assert "\n" not in str(caught.value)


def test_pool_when_there_are_several_then_the_named_one_is_run(tmp_path: Path) -> None:
    """The second, with settings of its own."""
    pools = [{**POOL, "name": "a"}, {**POOL, "name": "b", "fairness": "fcfs"}]
    path = written(tmp_path, pools=pools, routes=[{"pool": "a"}])
    assert experiment_of(path, name="b").fairness == "fcfs"
    assert experiment_of(path, name="a").fairness == "sfq"
