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

__all__ = ["Comparison", "comparison_document", "measured_columns", "run_pairs"]


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

    @property
    def is_by_seed(self) -> bool:
        """Whether seeds are the pairs: they have requests of their own, and are several."""
        return is_drawn(self.job.cell.trace) and len(self.seeds) > 1


def run_pairs(
    comparison: Comparison,
    *,
    processes: int,
    backend: str | None = None,
    on_run: Callable[[Columns], None],
) -> None:
    """Run both policies, seed by seed: first, second, first, second.

    Args:
        comparison: What is compared.
        processes: Runs at once.
        backend: See ``map_jobs``.
        on_run: Called with what became of each run's requests, in that order.

    Raises:
        ConfigError: See ``prepared_job``; or there are too few requests to part.
    """
    job = comparison.job
    _, window = prepared_job(job)
    count = len(window.measured)
    if not comparison.is_by_seed and count < 2 * BATCHES:
        raise ConfigError(
            f"{count} measured requests are too few to be paired in {BATCHES} stretches, allowed: "
            f"{2 * BATCHES} or more"
        )
    jobs = [
        replace(job, policy=c.policy, setting=c.setting, seed=seed)
        for seed in comparison.seeds
        for c in comparison.contenders
    ]
    with closing(map_jobs(measured_columns, jobs, processes=processes, backend=backend)) as ended:
        for columns in ended:
            on_run(columns)


def comparison_document(comparison: Comparison, runs: Sequence[Columns]) -> dict[str, Any]:
    """Return the JSON document of the seeds that have run under both policies."""
    job = comparison.job
    pairs = len(runs) // 2
    ours, others = runs[: 2 * pairs : 2], runs[1 : 2 * pairs : 2]
    return {
        "first": comparison.contenders[0].name,
        "second": comparison.contenders[1].name,
        **asdict(job.cell),
        "requests": len(ours[0].tokens) if pairs else 0,
        "warmup": job.warmup,
        "cooldown": job.cooldown,
        "declared": job.wishes.declared,
        "slo": asdict(job.wishes.slo),
        "seeds": pairs,
        "is_complete": pairs == len(comparison.seeds),
        "pairs_are": "seeds" if comparison.is_by_seed else "stretches",
        "figures": paired_rows(ours, others, batches=1 if comparison.is_by_seed else BATCHES)
        if pairs
        else [],
        "good_under": requests_apart(ours, others),
    }


def measured_columns(job: Job) -> Columns:
    """Run a job and return what became of its measured requests."""
    experiment, window = prepared_job(job)
    record = run_experiment(experiment, seed=job.seed)
    return columns_of(record, experiment.slo, window=window)
