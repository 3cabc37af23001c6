"""How are two policies run on the same requests?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.study.compare.columns import Columns, columns_of
from tokenweir.study.compare.pairs import BATCHES, paired_rows, requests_apart
from tokenweir.study.experiment import run_experiment
from tokenweir.study.parallel import map_jobs
from tokenweir.study.plan import is_drawn
from tokenweir.study.sweep.contenders import Contender
from tokenweir.study.sweep.measure import Job, prepared_job

__all__ = ["Comparison", "compared", "measured_columns"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared.

    Attributes:
        job: The first policy's run, with any seed.
        contenders: Both, by name.
        seeds: Of every random stream.
    """

    job: Job
    contenders: tuple[Contender, Contender]
    seeds: Sequence[int]


def compared(
    comparison: Comparison,
    *,
    processes: int,
    backend: str | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run both policies and return the JSON document.

    Raises:
        ConfigError: See ``windowed``; or a seed is all there is, and too few requests to part.
    """
    job, seeds = comparison.job, comparison.seeds
    is_by_seed = is_drawn(job.cell.trace) and len(seeds) > 1
    prepared_job(job)
    jobs = [
        replace(job, policy=c.policy, setting=c.setting, seed=seed)
        for c in comparison.contenders
        for seed in seeds
    ]
    runs: list[Columns] = []
    with closing(map_jobs(measured_columns, jobs, processes=processes, backend=backend)) as ended:
        for columns in ended:
            runs.append(columns)
            on_run()
    ours, others = runs[: len(seeds)], runs[len(seeds) :]
    if not is_by_seed and len(ours[0].tokens) < 2 * BATCHES:
        raise ConfigError(
            f"{len(ours[0].tokens)} measured requests are too few to be paired in {BATCHES} "
            f"stretches, allowed: {2 * BATCHES} or more"
        )
    return {
        "first": comparison.contenders[0].name,
        "second": comparison.contenders[1].name,
        **asdict(job.cell),
        "requests": len(ours[0].tokens),
        "warmup": job.warmup,
        "cooldown": job.cooldown,
        "declared": job.wishes.declared,
        "slo": asdict(job.wishes.slo),
        "seeds": len(seeds),
        "pairs_are": "seeds" if is_by_seed else "stretches",
        "figures": paired_rows(ours, others, batches=1 if is_by_seed else BATCHES),
        "good_under": requests_apart(ours, others),
    }


def measured_columns(job: Job) -> Columns:
    """Run a job and return what became of its measured requests."""
    experiment, window = prepared_job(job)
    record = run_experiment(experiment, seed=job.seed)
    return columns_of(record, experiment.slo, window=window)
