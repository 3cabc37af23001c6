"""How is a policy tuned on one part of a trace and judged on the other?

The trace's measured requests are cut in two: the search sees the first part only. The setting that
it found and the defaults are then run on the second part, which nothing was chosen by, and compared
request by request (see ``compare``). What is only noise of the first part shows no clear difference
there, and the defaults are to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.study.compare.columns import Columns
from tokenweir.study.compare.pairs import BATCHES, paired_rows
from tokenweir.study.compare.run import measured_columns
from tokenweir.study.knobs import KNOBS, Setting
from tokenweir.study.parallel import map_jobs
from tokenweir.study.sweep.measure import Figures, Job, prepared_job
from tokenweir.study.sweep.run import do_jobs
from tokenweir.study.sweep.store import Store
from tokenweir.study.tune.search import OBJECTIVES, Search, Trial, searched
from tokenweir.study.weights import weights_of

__all__ = ["Tuning", "halves", "tune", "tuning_document"]

_TENANTS_SHOWN_MAX = 50


@dataclass(slots=True)
class Tuning:
    """A tuning in progress: what is known of it so far.

    Attributes:
        search: What is tuned, on the first part.
        held_out: The same run on the second part.
        trials: In order.
        setting: What was found, None until the search has ended.
        judged: A row per load, see ``paired_rows``, None until both have run on the second part.
    """

    search: Search
    held_out: Job
    trials: list[Trial] = field(default_factory=list)
    setting: Setting | None = None
    judged: list[dict[str, Any]] | None = None


def halves(job: Job, *, share: float) -> tuple[Job, Job]:
    """Cut a job's measured requests in two, the second part with a warm-up from the first.

    Args:
        job: All of it.
        share: Of the second part, above 0 and below 1.

    Raises:
        ConfigError: The share is out of range, or a part has too few requests.
    """
    if not 0 < share < 1:
        raise ConfigError(f"--hold-out {share:g} is not allowed, allowed: between 0 and 1")
    _, window = prepared_job(job)
    count = len(window.measured)
    second = round(count * share)
    first = count - second
    if min(first, second) < 2 * BATCHES:
        raise ConfigError(
            f"{count} measured requests leave {first} to tune on and {second} to judge by, "
            f"allowed: {2 * BATCHES} or more each"
        )
    return replace(job, requests=first), replace(job, requests=second, skip=job.skip + first)


def tune(
    tuning: Tuning,
    store: Store,
    *,
    processes: int,
    backend: str | None = None,
    on_job: Callable[[], None] = lambda: None,
) -> None:
    """Search, then judge; what is known meanwhile stands in ``tuning``."""

    def measured(jobs: Sequence[Job]) -> list[Figures]:
        do_jobs(jobs, store, processes=processes, backend=backend, on_job=on_job)
        figures = [store.get(job) for job in jobs]
        return [row for row in figures if row is not None]

    tuning.setting = searched(
        tuning.search, measure=measured, on_trials=lambda trials: tuning.trials.extend(trials)
    )
    tuning.judged = _judged(tuning, processes=processes, backend=backend, on_job=on_job)


def _judged(
    tuning: Tuning, *, processes: int, backend: str | None, on_job: Callable[[], None]
) -> list[dict[str, Any]]:
    search, setting = tuning.search, tuning.setting or ()
    held_out = replace(search, job=tuning.held_out)
    jobs = held_out.jobs(setting) + held_out.jobs(())
    columns: list[Columns] = []
    with closing(map_jobs(measured_columns, jobs, processes=processes, backend=backend)) as ended:
        for one in ended:
            columns.append(one)
            on_job()
    seeds, half = len(search.seeds), len(jobs) // 2
    rows = []
    for number, load in enumerate(search.loads):
        part = slice(number * seeds, (number + 1) * seeds)
        pairs = paired_rows(columns[:half][part], columns[half:][part], batches=BATCHES)
        rows.append({"load": load, "figures": pairs})
    return rows


def tuning_document(tuning: Tuning) -> dict[str, Any]:
    """Return the JSON document of what is known."""
    search = tuning.search
    job = search.job
    experiment, _ = prepared_job(replace(job, setting=()))
    return {
        "trace": job.cell.trace,
        "profile": job.cell.profile,
        "policy": job.policy,
        "loads": list(search.loads),
        "seeds": len(search.seeds),
        "declared": job.wishes.declared,
        "slo": asdict(job.wishes.slo),
        "for": search.objective,
        "attainment": search.attainment,
        "requests": {"tuned_on": job.requests, "held_out": tuning.held_out.requests},
        "defaults": {knob: KNOBS[knob].now(experiment) for knob in search.knobs},
        "found": None if tuning.setting is None else dict(tuning.setting),
        "weights": _weights(tuning),
        "trials": [asdict(trial) for trial in tuning.trials],
        "held_out": tuning.judged,
        "is_complete": tuning.judged is not None,
        "advice": _advice(tuning),
    }


def _weights(tuning: Tuning) -> dict[str, float]:
    """Return the weights of the largest tenants where equal ones are not what was found."""
    experiment, _ = prepared_job(replace(tuning.search.job, setting=tuning.setting or ()))
    named = weights_of(experiment.asked, power=experiment.weights_power).named
    return {tenant: limits.weight for tenant, limits in list(named.items())[:_TENANTS_SHOWN_MAX]}


def _advice(tuning: Tuning) -> str:
    """Return one sentence: take it or leave it."""
    if tuning.judged is None or tuning.setting is None:
        return "interrupted: nothing was judged"
    if not tuning.setting:
        return "keep the defaults: nothing was found that is better on the part tuned on"
    kinds = OBJECTIVES[tuning.search.objective]
    rows = [row for one in tuning.judged for row in one["figures"] if row["figure"] in kinds]
    falls = [row for row in rows if row["is_clear"] and row["difference"] < 0]
    rises = [row for row in rows if row["is_clear"] and row["difference"] > 0]
    if _misses(tuning):
        return "keep the defaults: on the held-out part what was found misses the attainment"
    if rises and not falls:
        return "take it: the held-out part, which it was not chosen by, is clearly better with it"
    if falls:
        return "keep the defaults: somewhere the held-out part is clearly worse with what was found"
    return "keep the defaults: on the held-out part the difference is no more than chance"


def _misses(tuning: Tuning) -> bool:
    """Tell whether attainment falls under what is asked for where the defaults keep it."""
    least = tuning.search.attainment
    for one in tuning.judged or []:
        row = next(row for row in one["figures"] if row["figure"] == "attainment")
        kept = row["second"] is None or row["second"] >= least
        if kept and row["first"] is not None and row["first"] < least:
            return True
    return False
