"""Plans, tuning, stores and verdicts of sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenweir.cli.study_options import wishes_from
from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival
from tokenweir.study.sweep import measure as measuring
from tokenweir.study.sweep.binding import binding_of, seats_allowed
from tokenweir.study.sweep.contenders import Contender, contenders_from
from tokenweir.study.sweep.document import run_sweep, sweep_document
from tokenweir.study.sweep.measure import Job, key_of, measure, prepared_job
from tokenweir.study.sweep.plan import (
    PLANS,
    Cell,
    PlanRow,
    SweepPlan,
    loads_from,
    plan_named,
    sweep_plan,
)
from tokenweir.study.sweep.run import best_limits, sweep_workloads, tuning_jobs
from tokenweir.study.sweep.store import Store
from tokenweir.study.sweep.verdicts import verdicts_on

TPOT_NS = 80_000_000


def small_plan(*policies: str, seeds: tuple[int, ...] = (1,)) -> SweepPlan:
    """Return a plan of seconds."""
    row = PlanRow(
        "small", ("article-overload",), ("article",), (0.7, 2.0), policies, 300, Slo(), 100, 50
    )
    return sweep_plan(
        row, name="quick", wishes=wishes_from(slo=row.slo), seeds=seeds, tuning_requests=200
    )


def job(**changes: Any) -> Job:
    """Return a job of the small plan."""
    fields: dict[str, Any] = {
        "cell": Cell("article-overload", "article", 2.0),
        "policy": "token",
        "setting": (),
        "seed": 1,
        "requests": 200,
        "warmup": 50,
        "cooldown": 20,
        "wishes": wishes_from(slo=Slo()),
    }
    return Job(**fields | changes)


def ignore(name: str, total: int) -> Any:
    """Show no progress."""
    return lambda: None


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_plan_when_named_then_all_its_words_are_known(name: str) -> None:
    """Every row of the table makes a plan whose first contender has rivals."""
    row = plan_named(name)
    plan = sweep_plan(
        row, name=name, wishes=wishes_from(slo=row.slo), seeds=(1,), tuning_requests=3_000
    )
    assert len(plan.contenders) > 1
    assert not plan.contenders[0].is_tuned


@pytest.mark.parametrize("text", ["", "a", "1,1", "0", "nan", "inf", "-1"])
def test_loads_when_one_is_wrong_then_the_text_says_what_is_allowed(text: str) -> None:
    """No load outside the range, none twice."""
    with pytest.raises(ConfigError, match=r"--load .* allowed: numbers from 0.001"):
        loads_from(text)
    assert loads_from("3, 0.7") == (0.7, 3.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("magic", "unknown policy"),
        ("token*", "no limit to tune"),
        ("token=7", "no limit to tune"),
        ("none,none", "named twice"),
        ("concurrency=", "a limit from 1"),
        ("concurrency=x", "a limit from 1"),
        ("concurrency=0", "a limit from 1"),
        ("concurrency*=7", "allowed here"),
    ],
)
def test_contenders_when_a_word_is_wrong_then_the_text_says_what_is_allowed(
    text: str, expected: str
) -> None:
    """Unknown, untunable, twice."""
    with pytest.raises(ConfigError, match=expected):
        contenders_from(text)


def test_contenders_when_a_limit_is_set_then_it_is_turned() -> None:
    """``=N`` sets it, ``*`` tunes it, nothing leaves it."""
    contenders = contenders_from("concurrency=7,concurrency*,concurrency")
    assert contenders == [
        Contender("concurrency", limit=7),
        Contender("concurrency", is_tuned=True),
        Contender("concurrency"),
    ]
    assert [c.name for c in contenders] == ["concurrency=7", "concurrency*", "concurrency"]
    assert [c.setting for c in contenders] == [(("limit", 7),), (), ()]


# --- what binds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "prompt", "output", "expected"),
    [
        ("8b-h100", 663, 239, "seats"),
        ("8b-h100", 4_000, 300, "kv"),
        ("8b-a100", 4_000, 300, "budget"),
        ("70b-4xh100", 100, 900, "seats"),
        ("article", 663, 1_200, "kv"),
    ],
)
def test_binding_when_the_mix_is_known_then_the_scarcest_resource_is_named(
    engine: str, prompt: int, output: int, expected: str
) -> None:
    """By the profile, from means."""
    mix = [Arrival(0, prompt, output)]
    allowed = seats_allowed(mix, profile(engine), tpot_ns=TPOT_NS)
    assert binding_of(allowed, with_budget=True) == expected
    assert binding_of(allowed) != "budget"


def test_seats_allowed_when_all_requests_are_alike_then_they_are_the_formulas() -> None:
    """Pool over context, budget over tokens a step; the pace is met and not by much more."""
    engine = profile("8b-a100")
    allowed = seats_allowed([Arrival(0, 600, 200)], engine, tpot_ns=TPOT_NS)
    assert allowed["kv"] == pytest.approx(421_000 / 700)
    assert allowed["budget"] == pytest.approx(512 / 4)
    seats = allowed["pace"]
    step_ns = engine.duration_ns(
        tokens=4 * seats, kv_tokens=700 * seats, sequences=seats, attention=seats * 600**2 / 400
    )
    assert step_ns == pytest.approx(TPOT_NS, rel=1e-3)


# --- stores ---------------------------------------------------------------------------------------


def test_store_when_opened_again_then_what_ended_is_there(tmp_path: Path) -> None:
    """A job is found by all it depends on, and by nothing less."""
    store = Store(tmp_path)
    store.add(job(), {"goodput_requests": 0.5})
    store.close()
    again = Store(tmp_path)
    assert again.get(job()) == {"goodput_requests": 0.5}
    assert again.get(job(seed=2)) is None
    assert again.missing([job(), job(seed=2), job(seed=2)]) == [job(seed=2)]
    again.close()


def test_store_when_its_last_line_was_cut_short_then_the_others_count(tmp_path: Path) -> None:
    """A kill in the middle of a write costs one job, also when more are added."""
    store = Store(tmp_path)
    store.add(job(), {"a": 1.0})
    store.close()
    path = tmp_path / "jobs.jsonl"
    path.write_text(path.read_text() + path.read_text()[:40])
    second = Store(tmp_path)
    second.add(job(seed=2), {"a": 2.0})
    second.close()
    third = Store(tmp_path)
    assert third.get(job()) == {"a": 1.0}
    assert third.get(job(seed=2)) == {"a": 2.0}
    third.close()


def test_store_when_the_code_has_changed_then_old_figures_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another version of the policy measured says nothing of this one."""
    store = Store(tmp_path)
    store.add(job(), {"a": 1.0})
    store.close()
    monkeypatch.setattr("tokenweir.study.sweep.store.fingerprint", lambda: "other")
    other = Store(tmp_path)
    assert other.get(job()) is None
    other.close()
    assert len(measuring.fingerprint()) == 12


def test_store_when_the_place_is_a_file_then_one_line_says_so(tmp_path: Path) -> None:
    """A directory is asked for."""
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ConfigError, match="allowed: a directory"):
        Store(path)


def test_engine_queue_when_measured_then_nothing_waits_before_the_engine() -> None:
    """The engine's own bound is measured as engines have it; other policies have our queue."""
    assert prepared_job(job(policy="engine_queue"))[0].queue.items_max == 0
    assert prepared_job(job())[0].queue.items_max > 0


# --- runs -----------------------------------------------------------------------------------------


def test_job_when_measured_twice_then_figures_are_equal_and_fit_on_a_line() -> None:
    """Same job, same figures, through JSON and back."""
    first = measure(job())
    assert first == measure(job())
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert json.loads(key_of(job()))["cell"]["load"] == 2


def test_sweep_when_run_then_every_cell_has_every_contender_with_its_interval() -> None:
    """Two loads, two contenders, three seeds; the tuned one says its limit."""
    plan = small_plan("predictive", "concurrency*", seeds=(1, 2, 3))
    store = Store()
    run_sweep(plan, store, processes=1, on_phase=ignore)
    document = sweep_document(plan, store, workloads=sweep_workloads(plan))
    assert document["is_complete"]
    assert [row["policy"] for row in document["rows"]] == ["predictive", "concurrency*"] * 2
    assert all(row["ci95"]["goodput_requests"] is not None for row in document["rows"])
    best = [row["limit"] for row in document["tuning"] if row["is_best"]]
    assert best == [document["rows"][1]["setting"]["limit"]]
    (bound,) = document["bounds"]
    assert bound["load"] == 0.7
    assert bound["level"] == "E"
    (below, above) = document["cells"]
    assert below["excess"] is not None
    assert above["excess"] is None
    assert set(above["ratios"]) == {"concurrency*"}


def test_sweep_when_interrupted_then_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had ended is in the document and is not run again; the end is the same."""
    plan = small_plan("predictive", "token")
    whole = Store()
    run_sweep(plan, whole, processes=1, on_phase=ignore)

    done: list[Job] = []

    def measured(one: Job) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(one)
        return measure(one)

    monkeypatch.setattr("tokenweir.study.sweep.run.measure", measured)
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, store, processes=1, on_phase=ignore)
    store.close()
    partial = sweep_document(plan, store, workloads=sweep_workloads(plan))
    assert not partial["is_complete"]
    assert len(partial["rows"]) == 3
    monkeypatch.setattr("tokenweir.study.sweep.run.measure", measure)
    again = Store(tmp_path)
    assert len(again.missing(done)) == 0
    run_sweep(plan, again, processes=1, on_phase=ignore)
    again.close()
    facts = sweep_workloads(plan)
    ended = sweep_document(plan, again, workloads=facts)
    assert ended == sweep_document(plan, whole, workloads=facts)


def test_best_limits_when_scored_then_each_load_counts_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit that is best at one load and half as good at the other scores 0.75."""
    plan = small_plan("predictive", "concurrency*")
    store = Store()
    for one in tuning_jobs(plan):
        limit = dict(one.setting)["limit"]
        good = 1.0 if (limit == 8) == (one.cell.load == 0.7) and limit in {8, 16} else 0.5
        store.add(one, {"goodput_requests": good, "goodput_tokens": good})
    limits, rows = best_limits(plan, store)
    scores = {row["limit"]: row["score"] for row in rows}
    assert scores[8] == scores[16] == 0.75
    assert scores[4] == 0.5
    assert limits == {("concurrency", "article-overload", "article"): 8}


# --- verdicts -------------------------------------------------------------------------------------


def cell(load: float, *, binds: str = "kv", rate: float = 1.0, **changes: float) -> dict[str, Any]:
    """Return a judged cell that keeps every promise."""
    ours = {
        "goodput_rps": rate,
        "goodput_tokens_per_s": rate,
        "attainment": changes.get("attainment", 1.0),
    }
    ratio = changes.get("ratio", 1.05)
    return {
        "trace": "t",
        "profile": "p",
        "load": load,
        "binds": binds,
        "ours": ours,
        "ratios": {"rival": {"goodput_requests": ratio, "goodput_tokens": ratio}},
        "excess": changes.get("excess", 0.0) if load < 1 else None,
    }


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (cell(3, rate=0.9), "collapse"),
        (cell(3, attainment=0.97), "attainment"),
        (cell(0.7, excess=0.02), "refusals"),
        (cell(3, binds="seats", ratio=0.98), "never worse"),
        (cell(3, ratio=1.02), "gain"),
    ],
)
def test_verdicts_when_one_cell_is_bad_then_its_promise_is_broken(
    broken: dict[str, Any], expected: str
) -> None:
    """And only that one."""
    rows = {row["promise"]: row for row in verdicts_on([cell(1), broken])}
    kept = {"gain overloaded"} if expected == "gain" else set()
    if expected == "gain":
        rows = {row["promise"]: row for row in verdicts_on([broken])}
    assert {name for name, row in rows.items() if not row["is_kept"]} - kept == {expected}
    assert rows[expected]["broken"]


def test_verdicts_when_all_is_well_then_all_are_kept() -> None:
    """Every promise is asked, and holds."""
    rows = verdicts_on([cell(0.7), cell(3)])
    assert [row["promise"] for row in rows] == [
        *("collapse", "attainment", "refusals", "never worse", "gain", "gain overloaded")
    ]
    assert all(row["is_kept"] for row in rows)
