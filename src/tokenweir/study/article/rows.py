"""What do we get for each of the article's rows?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tokenweir.sim.clients import ClientModel, article_clients
from tokenweir.study.article.published import (
    PUBLISHED,
    PUBLISHED_SPIKE_STATES,
    SPIKE,
    PublishedRow,
)
from tokenweir.study.experiment import Experiment, run_seeds

__all__ = ["RUN_S", "SPIKE_SEGMENTS", "article_rows", "experiment_of"]

RUN_S = 60.0
SPIKE_SEGMENTS = ((15.0, 30.0), (35.0, 140.0), (60.0, 30.0))


def segments_of(load: str) -> tuple[tuple[float, float], ...]:
    """Return the arrival rates behind a row's load."""
    return SPIKE_SEGMENTS if load == SPIKE else ((RUN_S, float(load)),)


def experiment_of(row: PublishedRow, *, queue: str, checks: bool) -> Experiment:
    """Return the run behind a published row."""
    return Experiment(
        policy=row.policy,
        segments=segments_of(row.load),
        discipline=queue,
        clients=article_clients() if row.group == "retry" else ClientModel(),
        checks=checks,
    )


def article_rows(
    *,
    seeds: Sequence[int],
    processes: int = 1,
    checks: bool = True,
    on_run: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every published row, in each discipline it is shown in.

    Returns:
        Rows as the JSON output has them: ours, published, deviation (ours minus published) and,
        for the spike, the series with the published states beside it.
    """
    wanted = [(row, queue) for row in PUBLISHED for queue in row.queues]
    experiments = [experiment_of(row, queue=queue, checks=checks) for row, queue in wanted]
    outcomes = run_seeds(experiments, seeds=seeds, processes=processes, on_run=on_run)
    rows: list[dict[str, Any]] = []
    for (row, queue), outcome in zip(wanted, outcomes, strict=True):
        rows.append({
            "group": row.group,
            "load": row.load,
            "policy": row.policy,
            "queue": queue,
            "seeds": len(seeds),
            "ours": outcome.summary,
            "published": dict(row.figures),
            "deviation": _deviation(outcome.summary, row.figures.items()),
            "series": outcome.series,
        })
        if row.group == "spike" and row.policy in PUBLISHED_SPIKE_STATES:
            rows[-1]["published_series"] = [
                {
                    "t_s": state.time_s,
                    "running": state.running,
                    "waiting": state.waiting,
                    "kv_fraction": state.kv_fraction,
                }
                for state in PUBLISHED_SPIKE_STATES[row.policy]
            ]
    return rows


def _deviation(ours: dict[str, Any], published: Iterable[tuple[str, float]]) -> dict[str, Any]:
    return {
        name: None if ours[name] is None else round(ours[name] - value, 6)
        for name, value in published
    }
