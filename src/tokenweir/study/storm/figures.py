"""How hard do retries hit after a spike, and how soon is it over?

Model: T = end of the spike; n_i = arrivals in the i-th tenth of a second of the 20 s after it; A =
attempts per unique request. A user is content when the first token comes within the SLO of the
first time the user asked.
Rule: index of dispersion = variance of n_i / mean of n_i: 1 for arrivals that know nothing of each
other, less where they are paced, more where they come together. Backlog = prompt tokens at T that
are queued, or in the engine and unread. Emptied = from T until nobody waits before the engine;
recovered = from T until that, and until who waited at T has a first token or has left. Allowed for
it are 1.2 x backlog / (capacity - load) + 0.5 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.sim.attempt import Attempt, Fate
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.scenario import Record

__all__ = ["dispersion", "storm_figures"]

_BIN_NS = 100 * NS_PER_MS
_AFTER_NS = 20 * NS_PER_S


def storm_figures(
    record: Record, slo: Slo, *, spike_ends_ns: Nanos, spare_tokens_per_s: float
) -> dict[str, Any]:
    """Return one run's figures.

    Args:
        record: The run.
        slo: What good means.
        spike_ends_ns: When the load falls.
        spare_tokens_per_s: Capacity less the load after it.
    """
    attempts, unique = record.attempts, len(record.scenario.arrivals)
    figures = summary(record, slo)
    backlog = _backlog_tokens(attempts, spike_ends_ns)
    first = [a.arrive_ns for a in attempts if a.number == 0]
    emptied_ns = _emptied_ns(attempts, spike_ends_ns)
    served_ns = max(
        (_settled_ns(a) for a in attempts if _waits_at(a, spike_ends_ns)), default=spike_ends_ns
    )
    return {
        "unique": unique,
        "attempts_per_unique": len(attempts) / unique,
        "dispersion_first": dispersion(first, since_ns=spike_ends_ns),
        "dispersion_all": dispersion([a.arrive_ns for a in attempts], since_ns=spike_ends_ns),
        "goodput_user": figures["goodput_first_arrival"],
        "goodput_unique": figures["goodput_unique"],
        "goodput_tokens": figures["goodput_tokens"],
        "served_any_fraction": _served_any(attempts) / unique,
        "ttft_p50_all_s": figures["ttft_p50_all_s"],
        "emptied_s": (emptied_ns - spike_ends_ns) / NS_PER_S,
        "recovered_s": (max(emptied_ns, served_ns) - spike_ends_ns) / NS_PER_S,
        "backlog_tokens": backlog,
        "recovery_allowed_s": 1.2 * backlog / spare_tokens_per_s + 0.5,
        "preemptions": figures["preemptions"],
        "refused_by_reason": figures["refused_by_reason"],
    }


def dispersion(times_ns: Sequence[Nanos], *, since_ns: Nanos) -> float:
    """Return the index of dispersion of arrivals in the 20 s from a time on; 0 for none."""
    edges = np.arange(since_ns, since_ns + _AFTER_NS + 1, _BIN_NS)
    counts, _ = np.histogram(np.asarray(times_ns, dtype=np.int64), bins=edges)
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean else 0.0


def _served_any(attempts: Sequence[Attempt]) -> int:
    return len({a.index for a in attempts if a.fate is Fate.COMPLETED})


def _left_queue_ns(attempt: Attempt) -> Nanos:
    """Return when an attempt stopped waiting before the engine."""
    if attempt.is_dispatched:
        return attempt.arrive_ns + attempt.queue_wait_ns
    return attempt.arrive_ns if attempt.end_ns is None else attempt.end_ns


def _settled_ns(attempt: Attempt) -> Nanos:
    """Return when an attempt had its first token, or left without one."""
    times = [t for t in (attempt.first_ns, attempt.end_ns) if t is not None]
    return min(times, default=attempt.arrive_ns)


def _waits_at(attempt: Attempt, then_ns: Nanos) -> bool:
    return attempt.arrive_ns <= then_ns < _settled_ns(attempt)


def _backlog_tokens(attempts: Sequence[Attempt], then_ns: Nanos) -> int:
    return sum(a.prompt_tokens for a in attempts if _waits_at(a, then_ns))


def _emptied_ns(attempts: Sequence[Attempt], since_ns: Nanos) -> Nanos:
    """Return the first time from ``since_ns`` on at which nobody waits before the engine."""
    busy = sorted(
        (a.arrive_ns, left_ns)
        for a in attempts
        if (left_ns := _left_queue_ns(a)) > since_ns and left_ns > a.arrive_ns
    )
    empty_ns = since_ns
    for arrive_ns, left_ns in busy:
        if arrive_ns > empty_ns:
            break
        empty_ns = max(empty_ns, left_ns)
    return empty_ns
