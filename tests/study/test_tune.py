"""Tuning on one part of a trace, judging on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tokenweir.cli.study_options import wishes_from
from tokenweir.core.errors import ConfigError
from tokenweir.sim.results import Slo
from tokenweir.study.plan import trace_from
from tokenweir.study.sweep.measure import Figures, Job, prepared_job
from tokenweir.study.sweep.plan import Cell
from tokenweir.study.sweep.store import Store
from tokenweir.study.tune.run import Tuning, halves, tune, tuning_document
from tokenweir.study.tune.search import Search, Trial, searched
from tokenweir.study.tune.tables import weights_line
from tokenweir.study.weights import asked_tokens


def whole(policy: str = "concurrency", *, requests: int = 400) -> Job:
    """Return a run of a second."""
    return Job(
        cell=Cell("article-overload", "article", 2.0),
        policy=policy,
        setting=(),
        seed=1,
        requests=requests,
        warmup=100,
        cooldown=50,
        wishes=wishes_from(slo=Slo()),
    )


def search(knobs: Sequence[str], *, policy: str = "predictive", **changes: Any) -> Search:
    """Return a search at one load."""
    return Search(whole(policy), knobs, changes.pop("loads", (2.0,)), (1,), **changes)


def pretend(goodput: Any, *, attainment: Any = lambda turned: 1.0) -> Any:
    """Return a measure by which figures depend on the setting alone."""

    def measure(jobs: Sequence[Job]) -> list[Figures]:
        return [
            {
                "goodput_requests": goodput(dict(job.setting)),
                "goodput_tokens": goodput(dict(job.setting)),
                "attainment": attainment(dict(job.setting)),
            }
            for job in jobs
        ]

    return measure


def test_search_when_two_knobs_help_then_both_are_turned_to_their_best() -> None:
    """Headroom is best at 0.9, pace at 0.8; it stops when nothing helps any more."""

    def goodput(turned: dict[str, Any]) -> float:
        return 1.0 - abs(turned.get("headroom", 0.97) - 0.9) - abs(turned.get("pace", 0.9) - 0.8)

    trials: list[Trial] = []
    found = searched(
        search(["headroom", "pace"]), measure=pretend(goodput), on_trials=trials.extend
    )
    assert dict(found) == {"headroom": 0.9, "pace": 0.8}
    assert max(trial.number for trial in trials) == 2
    assert [t.value for t in trials if t.is_taken] == ["", 0.9, 0.8]


def test_search_when_the_gain_is_tiny_then_the_defaults_stay() -> None:
    """What is not worth a setting of one's own is left alone."""
    found = searched(
        search(["headroom", "wait"]),
        measure=pretend(lambda turned: 1.0 + 0.001 * len(turned)),
        on_trials=lambda trials: None,
    )
    assert found == ()


def test_search_when_more_goodput_misses_the_slo_then_it_is_not_taken() -> None:
    """Attainment comes before goodput, and is mended where the defaults miss it."""
    greedy = searched(
        search(["pace"]),
        measure=pretend(
            lambda turned: turned.get("pace", 0.9),
            attainment=lambda turned: 0.9 if turned.get("pace", 0.9) > 0.9 else 1.0,
        ),
        on_trials=lambda trials: None,
    )
    assert greedy == ()
    mended = searched(
        search(["pace"]),
        measure=pretend(
            lambda turned: turned.get("pace", 0.9),
            attainment=lambda turned: 0.9 if turned.get("pace", 0.9) > 0.8 else 1.0,
        ),
        on_trials=lambda trials: None,
    )
    assert dict(mended) == {"pace": 0.8}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"objective": "fame"}, "--for 'fame'"), ({"attainment": 1.5}, "--attainment 1.5")],
)
def test_search_when_a_word_is_wrong_then_the_option_is_named(
    changes: dict[str, Any], expected: str
) -> None:
    """One line that says what is allowed."""
    with pytest.raises(ConfigError, match=expected):
        search(["pace"], **changes)


def test_halves_when_cut_then_no_request_is_in_both() -> None:
    """The second part begins where the first ended, with the first as its warm-up."""
    first, second = halves(whole(), share=0.25)
    assert (first.requests, second.requests, second.skip) == (300, 100, 300)
    _, all_of_it = prepared_job(whole())
    windows = [prepared_job(job)[1] for job in (first, second)]
    lengths = [
        [(a.prompt_tokens, a.output_tokens) for a in window.measured]
        for window in (all_of_it, *windows)
    ]
    assert lengths[0] == lengths[1] + lengths[2]
    warmup = windows[1].arrivals[: windows[1].first]
    assert [(a.prompt_tokens, a.output_tokens) for a in warmup] == lengths[1][-100:]


@pytest.mark.parametrize(
    ("share", "requests", "expected"),
    [
        (0.0, 400, "--hold-out 0"),
        (1.0, 400, "--hold-out 1"),
        (float("nan"), 400, "--hold-out nan"),
        (0.5, 70, "35 to tune on and 35 to judge by"),
    ],
)
def test_halves_when_a_part_is_too_small_then_one_line_says_so(
    share: float, requests: int, expected: str
) -> None:
    """Neither part may be too small to tell anything."""
    with pytest.raises(ConfigError, match=expected):
        halves(whole(requests=requests), share=share)


def test_tune_when_a_limit_is_far_off_then_it_is_found_and_holds_on_the_other_part() -> None:
    """The default limit suits another engine; what is found is better where nobody looked."""
    first, second = halves(whole(requests=1_000), share=0.4)
    tuning = Tuning(Search(first, ["limit"], (2.0,), (1,)), second)
    before = tuning_document(tuning)
    assert not before["is_complete"]
    assert before["advice"].startswith("interrupted")
    tune(tuning, Store(), processes=1)
    document = tuning_document(tuning)
    assert document["is_complete"]
    assert document["requests"] == {"tuned_on": 600, "held_out": 400}
    (held_out,) = document["held_out"]
    assert held_out["load"] == 2.0
    assert document["advice"].startswith(("take it", "keep the defaults"))


def test_tune_when_nothing_is_found_then_the_advice_is_to_keep_the_defaults() -> None:
    """No setting, no difference, no claim."""
    first, second = halves(whole("none"), share=0.4)
    tuning = Tuning(Search(first, ["wait"], (0.5,), (1,)), second)
    tune(tuning, Store(), processes=1)
    document = tuning_document(tuning)
    assert document["found"] == {}
    assert "nothing was found" in document["advice"]
    assert all(row["difference"] == 0 for row in document["held_out"][0]["figures"])


def test_part_that_judges_when_weights_go_by_demand_then_only_what_came_before_is_known() -> None:
    """Its own requests' tenants would be a look into the future."""
    job = replace(whole(requests=200), cell=Cell("vtc-arena", "article", 1.0), policy="predictive")
    first, second = halves(job, share=0.5)
    seen, judged = (prepared_job(part)[0] for part in (first, second))
    assert seen.asked == asked_tokens(seen.arrivals)
    before = trace_from("vtc-arena", seed=1)[: second.skip + second.warmup]
    assert judged.asked == asked_tokens(before) != asked_tokens(judged.arrivals)


def test_document_when_unequal_weights_were_found_then_it_names_them_for_the_settings() -> None:
    """The power is of no use to whoever writes the file; the largest tenant comes first."""
    job = replace(whole(requests=200), cell=Cell("vtc-arena", "article", 1.0), policy="predictive")
    first, second = halves(job, share=0.5)
    tuning = Tuning(Search(first, ["weights"], (1.0,), (1,)), second)
    assert tuning_document(tuning)["weights"] == {}
    assert weights_line(tuning_document(tuning)) == ""
    tuning.setting = (("weights", 1.0),)
    document = tuning_document(tuning)
    weights = list(document["weights"].values())
    assert len(weights) > 8
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > 1 > weights[-1]
    tenant = next(iter(document["weights"]))
    assert weights_line(document).startswith(f"weights by tenant: {tenant} {weights[0]:g}, ")
    assert weights_line(document).endswith(", and more with --json")
