"""Two policies on the same requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenweir.cli.study_options import wishes_from
from tokenweir.core.errors import ConfigError
from tokenweir.sim.results import Slo
from tokenweir.study.compare.columns import FIGURES, Columns
from tokenweir.study.compare.pairs import paired_rows, requests_apart
from tokenweir.study.compare.run import Comparison, comparison_document, run_pairs
from tokenweir.study.sweep.contenders import contenders_from
from tokenweir.study.sweep.measure import Job, measure
from tokenweir.study.sweep.plan import Cell


def columns(good: list[bool], *, ttft_s: float = 0.5) -> Columns:
    """Return requests of one token each, all of which entered."""
    flags = np.array(good)
    count = len(good)
    return Columns(flags, np.ones(count, np.bool_), np.full(count, ttft_s), np.ones(count))


def comparison(first: str, second: str, *, seeds: list[int], requests: int = 400) -> Comparison:
    """Return a comparison of a second."""
    ours, theirs = contenders_from([first, second], may_tune=False)
    job = Job(
        cell=Cell("article-overload", "article", 2.0),
        policy=ours.policy,
        setting=ours.setting,
        seed=1,
        requests=requests,
        warmup=100,
        cooldown=50,
        wishes=wishes_from(slo=Slo()),
    )
    return Comparison(job, (ours, theirs), seeds)


def compared(asked: Comparison, *, processes: int, runs_max: int = 1_000) -> dict[str, Any]:
    """Return the document of a comparison, cut off after some runs."""
    runs: list[Columns] = []
    run_pairs(asked, processes=processes, on_run=runs.append)
    return comparison_document(asked, runs[:runs_max])


def test_pairs_when_one_policy_is_always_a_little_better_then_that_is_clear() -> None:
    """Pairs cancel what stretches differ in, however much that is."""
    rng = np.random.default_rng(1)
    level = np.repeat(rng.random(20), 200)
    draws = rng.random(4_000)
    worse = columns((draws < level * 0.9).tolist())
    better = columns((draws < level * 0.9 + 0.02).tolist())
    rows = {row["figure"]: row for row in paired_rows([better], [worse], batches=20)}
    goodput = rows["goodput_requests"]
    assert goodput["difference"] == pytest.approx(0.02, abs=0.01)
    assert goodput["is_clear"]
    assert goodput["pairs"] == 20
    unpaired = np.std([worse.is_good[i : i + 200].mean() for i in range(0, 4_000, 200)])
    assert goodput["ci95"] < unpaired / 10


def test_pairs_when_both_are_the_same_then_nothing_is_clear() -> None:
    """No difference, no interval around it, no claim."""
    run = columns([True, False] * 100)
    for row in paired_rows([run], [run], batches=20):
        assert row["difference"] == 0
        assert not row["is_clear"]


def test_pairs_when_nothing_was_served_then_figures_are_none() -> None:
    """A percentile of nobody is no number."""
    nobody = Columns(
        np.zeros(40, np.bool_), np.zeros(40, np.bool_), np.full(40, np.nan), np.ones(40)
    )
    rows = {row["figure"]: row for row in paired_rows([nobody], [columns([True] * 40)], batches=20)}
    assert rows["ttft_p50_s"]["first"] is None
    assert rows["attainment"]["difference"] is None
    assert rows["goodput_requests"]["difference"] == -1


def test_requests_apart_when_counted_then_they_are_all_there() -> None:
    """Both, first only, second only, neither."""
    apart = requests_apart([columns([True, True, False])], [columns([True, False, False])])
    assert apart == {"both": 1, "first_only": 1, "second_only": 0, "neither": 1}


def test_compared_when_run_then_figures_are_those_of_each_policy_alone() -> None:
    """The same as a sweep measures, and the difference of both."""
    asked = comparison("predictive", "concurrency=40", seeds=[1])
    document = compared(asked, processes=1)
    assert document["second"] == "concurrency=40"
    assert document["pairs_are"] == "stretches"
    alone = measure(asked.job)
    rows = {row["figure"]: row for row in document["figures"]}
    assert set(rows) == set(FIGURES)
    for name in ("goodput_requests", "goodput_tokens", "attainment", "refused_fraction"):
        assert rows[name]["first"] == pytest.approx(alone[name], abs=1e-6)
        difference = rows[name]["first"] - rows[name]["second"]
        assert rows[name]["difference"] == pytest.approx(difference, abs=2e-6)


def test_compared_when_seeds_draw_workloads_then_they_are_the_pairs() -> None:
    """Three seeds, three pairs; as many processes as one likes."""
    asked = comparison("predictive", "token", seeds=[1, 2, 3])
    document = compared(asked, processes=1)
    assert document["pairs_are"] == "seeds"
    assert all(row["pairs"] <= 3 for row in document["figures"])
    assert document == compared(asked, processes=2)


def test_compared_when_interrupted_then_whole_pairs_are_left() -> None:
    """Three runs are one pair and a half: the pair counts, and the document says so."""
    document = compared(comparison("predictive", "token", seeds=[1, 2]), processes=1, runs_max=3)
    assert not document["is_complete"]
    assert document["seeds"] == 1
    assert document["figures"][0]["pairs"] == 1
    assert document["figures"][0]["ci95"] is None


def test_compared_when_requests_are_few_then_one_line_says_so() -> None:
    """Twenty stretches of one request tell nothing."""
    with pytest.raises(ConfigError, match="allowed: 40 or more"):
        compared(comparison("predictive", "token", seeds=[1], requests=30), processes=1)
