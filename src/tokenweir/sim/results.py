"""What did a run achieve? Per attempt and per unique request, in requests and in tokens.

Good means: completed, TTFT and TPOT both within the SLO. An attempt's TTFT counts from its own
arrival; ``goodput_first_arrival`` counts from the unique request's first arrival, which is what
its user feels. Percentiles come twice: over completed attempts (survivors), and over all unique
requests with those never served as infinite, shown as None.
Where there are several replicas each has its own row; where there is a prefix cache, so has that:
what of the prompts it spared, and how right the index was that discounted for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenweir.core.audit import PROMPT_BUCKETS, prompt_bucket
from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, s_from_ns
from tokenweir.sim.attempt import Attempt, Fate
from tokenweir.sim.scenario import Record

__all__ = ["Slo", "is_good", "quantile_s", "series", "summary"]


@dataclass(frozen=True, slots=True)
class Slo:
    """What a served request must meet.

    Attributes:
        ttft_ns: Bound on TTFT.
        tpot_ns: Bound on TPOT.
        unloaded_ratio: A prompt whose first token takes long on an idle engine may take so many
            times that; the larger bound holds.
    """

    ttft_ns: Nanos = NS_PER_S
    tpot_ns: Nanos = 80 * NS_PER_MS
    unloaded_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.unloaded_ratio <= 1_000:
            raise ConfigError(
                f"unloaded_ratio {self.unloaded_ratio} is not allowed, allowed: 0 to 1000"
            )

    def first_token_ns(self, prompt_tokens: int, engine: EngineProfile) -> Nanos:
        """Return the bound on TTFT of a prompt on this engine."""
        if self.unloaded_ratio == 0:
            return self.ttft_ns
        unloaded_ns = engine.unloaded_first_token_ns(prompt_tokens)
        return max(self.ttft_ns, int(self.unloaded_ratio * unloaded_ns))


def is_good(attempt: Attempt, slo: Slo, *, engine: EngineProfile) -> bool:
    """Tell whether an attempt was completed within the SLO."""
    if attempt.fate is not Fate.COMPLETED or attempt.first_ns is None or attempt.end_ns is None:
        return False
    if attempt.first_ns - attempt.arrive_ns > slo.first_token_ns(attempt.prompt_tokens, engine):
        return False
    gaps = attempt.output_tokens - 1
    return gaps <= 0 or attempt.end_ns - attempt.first_ns <= slo.tpot_ns * gaps


def quantile_s(values_ns: Sequence[float], q: float) -> float | None:
    """Return the nearest-rank quantile in seconds; None where there is none or it is infinite."""
    if not len(values_ns):
        return None
    ordered = np.sort(np.asarray(values_ns, dtype=np.float64))
    value = float(ordered[min(len(ordered) - 1, int(q * len(ordered)))])
    return value / NS_PER_S if np.isfinite(value) else None


def summary(record: Record, slo: Slo) -> dict[str, Any]:
    """Return a run's figures, by the names of the JSON output."""
    attempts = record.attempts
    arrivals = record.scenario.arrivals
    fates = Counter([a.fate for a in attempts])
    engine = record.scenario.profile
    good = [a for a in attempts if is_good(a, slo, engine=engine)]
    good_indexes = {a.index for a in good}
    tokens = np.array([a.prompt_tokens + a.output_tokens for a in arrivals], dtype=np.int64)
    good_tokens = int(tokens[sorted(good_indexes)].sum()) if good_indexes else 0
    served = [a for a in attempts if a.fate is Fate.COMPLETED]
    survivors = [a.first_ns - a.arrive_ns for a in served if a.first_ns is not None]
    reasons = Counter([a.reason for a in attempts if a.reason is not None])
    by_user = _ttft_by_user_ns(record)
    return {
        "arrivals": len(attempts),
        "unique": len(arrivals),
        "retries": sum(a.number > 0 for a in attempts),
        "refused": fates[Fate.REFUSED],
        "completed": fates[Fate.COMPLETED],
        "abandoned": fates[Fate.ABANDONED],
        "unserved": fates[Fate.UNSERVED],
        "goodput_per_attempt": _share(len(good), len(attempts)),
        "goodput_unique": _share(len(good_indexes), len(arrivals)),
        "goodput_first_arrival": _share(
            sum(by_user[a.index] <= slo.first_token_ns(a.prompt_tokens, engine) for a in good),
            len(arrivals),
        ),
        "goodput_tokens": _share(good_tokens, int(tokens.sum())),
        "ttft_p50_s": quantile_s(survivors, 0.5),
        "ttft_p99_s": quantile_s(survivors, 0.99),
        "ttft_p50_all_s": quantile_s(by_user, 0.5),
        "ttft_p99_all_s": quantile_s(by_user, 0.99),
        "tokens_per_s": record.worked_tokens / s_from_ns(record.span_ns),
        "tokens_useful": good_tokens,
        "tokens_wasted": record.worked_tokens - _worked_for(good),
        "tokens_recomputed": record.recomputed_tokens,
        "recomputed_fraction": _share(record.recomputed_tokens, record.worked_tokens),
        "preemptions": record.preemptions,
        "kv_mean_fraction": float(np.mean([s.kv_fraction for s in record.samples] or [0.0])),
        "span_s": s_from_ns(record.span_ns),
        "ledger_after": record.used_tokens_after,
        "refused_by_reason": dict(sorted((r.value, n) for r, n in reasons.items())),
        "buckets": _buckets(record, good_indexes),
        **_beyond_one_engine(record),
    }


def series(record: Record) -> list[dict[str, Any]]:
    """Return the run second by second: its state, what arrived and how much was refused."""
    seconds = [a.arrive_ns // NS_PER_S for a in record.attempts]
    arrived = Counter(seconds)
    refused = Counter(
        s for s, a in zip(seconds, record.attempts, strict=True) if a.fate is Fate.REFUSED
    )
    return [
        {
            "t_s": sample.time_s,
            "running": sample.running,
            "waiting": sample.waiting_in_engine,
            "queued": sample.queued,
            "kv_fraction": round(sample.kv_fraction, 4),
            "arrivals": arrived[sample.time_s - 1],
            "refused": refused[sample.time_s - 1],
        }
        for sample in record.samples
    ]


def _worked_for(attempts: Sequence[Attempt]) -> int:
    """Return the engine's work: the step that ends a prefill gives the first token free."""
    return sum(a.prompt_tokens + a.output_tokens - 1 - a.spared_tokens for a in attempts)


def _beyond_one_engine(record: Record) -> dict[str, Any]:
    """Return what only runs with outages, a prefix cache or several replicas have."""
    scenario = record.scenario
    rows: dict[str, Any] = {}
    if scenario.outages:
        rows["failed"] = sum(a.fate is Fate.FAILED for a in record.attempts)
    if record.index_precision is not None:
        rows["prefix_cache"] = _prefix_cache(record)
    if scenario.replicas > 1:
        rows["replicas"] = _replicas(record)
    return rows


def _prefix_cache(record: Record) -> dict[str, Any]:
    spared = sum(engine.spared_tokens for engine in record.engines)
    entered = sum(engine.entered_prompt_tokens for engine in record.engines)
    served = [a for a in record.attempts if a.fate is Fate.COMPLETED]
    both = sum(min(a.found_tokens, a.spared_tokens) for a in served)
    return {
        "cached_prompt_tokens": spared,
        "hit_fraction": _share(spared, entered),
        # Of what the index found, what engines had; and the other way round.
        "index_precision": _share(both, sum(a.found_tokens for a in served)),
        "index_recall": _share(both, sum(a.spared_tokens for a in served)),
        "discount_factor": record.index_precision,
    }


def _replicas(record: Record) -> dict[str, dict[str, Any]]:
    """Return what each engine did, by its name."""
    sent = Counter(a.replica_id for a in record.attempts if a.is_dispatched)
    served = Counter(a.replica_id for a in record.attempts if a.fate is Fate.COMPLETED)
    span_s = s_from_ns(record.span_ns)
    return {
        engine.replica_id: {
            "sent": sent[engine.replica_id],
            "completed": served[engine.replica_id],
            "tokens_per_s": engine.worked_tokens / span_s,
            "preemptions": engine.preemptions,
            "cached_prompt_tokens": engine.spared_tokens,
        }
        for engine in record.engines
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _ttft_by_user_ns(record: Record) -> list[float]:
    """Return, per unique request, first token minus first arrival; infinite where never served."""
    ttft = [float("inf")] * len(record.scenario.arrivals)
    for attempt in record.attempts:
        if attempt.fate is Fate.COMPLETED and attempt.first_ns is not None:
            asked_ns = record.scenario.arrivals[attempt.index].arrival_ns
            ttft[attempt.index] = min(ttft[attempt.index], attempt.first_ns - asked_ns)
    return ttft


def _buckets(record: Record, good_indexes: set[int]) -> dict[str, dict[str, Any]]:
    """Return arrivals and goodput by prompt-size bucket, smallest first."""
    labels = [prompt_bucket(a.prompt_tokens) for a in record.scenario.arrivals]
    unique = Counter(labels)
    good = Counter(labels[index] for index in good_indexes)
    order = [label for _, label in PROMPT_BUCKETS]
    order += sorted(set(unique) - set(order))
    return {
        label: {"unique": unique[label], "goodput_unique": _share(good[label], unique[label])}
        for label in order
        if unique[label]
    }
