"""What did a load achieve? Per attempt and per unique request, in requests and in tokens.

Good means: completed, TTFT and TPOT both within the SLO. Names are those of the simulator's
results: an attempt's TTFT counts from its own arrival; ``goodput_first_arrival`` and the ``_all_``
percentiles count from the unique request's first arrival, which is what its user feels. Whoever was
never served counts as infinite there, shown as None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenweir.core.units import NS_PER_S, Nanos, s_from_ns
from tokenweir.sim.results import Slo, quantile_s
from tokenweir.study.load.attempt import Fate, LoadAttempt
from tokenweir.study.load.plan import PlannedRequest

__all__ = ["LoadOutcome", "is_good", "load_row", "load_series", "load_summary"]


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """A run as it is reported.

    Attributes:
        plan: The unique requests that came due, in order.
        attempts: All of theirs.
        span_ns: From the first instant to the last answer or cut.
        preemptions: The engine's own count over the run, or None where it does not tell.
        is_complete: Every planned request was sent and the run was not interrupted.
        capped: Requests that failed because of the client's in-flight cap.
        lag_ns_max: How late the latest request was sent.
        cpu_fraction: Of one core, used by this process.
    """

    plan: Sequence[PlannedRequest]
    attempts: Sequence[LoadAttempt]
    span_ns: Nanos
    preemptions: int | None
    is_complete: bool
    capped: int
    lag_ns_max: Nanos
    cpu_fraction: float


def is_good(attempt: LoadAttempt, slo: Slo) -> bool:
    """Tell whether an attempt was completed within the SLO."""
    if attempt.fate is not Fate.COMPLETED or attempt.first_ns is None or attempt.last_ns is None:
        return False
    if attempt.first_ns - attempt.arrive_ns > slo.ttft_ns:
        return False
    gaps = attempt.output_tokens - 1
    return gaps <= 0 or attempt.last_ns - attempt.first_ns <= slo.tpot_ns * gaps


def load_summary(outcome: LoadOutcome, slo: Slo) -> dict[str, Any]:
    """Return a run's figures, by the names of the JSON output."""
    plan, attempts = outcome.plan, outcome.attempts
    fates = Counter(a.fate for a in attempts)
    good = [a for a in attempts if is_good(a, slo)]
    tokens = {r.index: r.prompt_tokens + r.output_tokens for r in plan}
    asked_ns = {r.index: r.due_ns for r in plan}
    good_tokens = sum(tokens[a.index] for a in good)
    first_ns = {a.index: a.first_ns for a in attempts if a.fate is Fate.COMPLETED and a.first_ns}
    by_user = [float(first_ns.get(i, math.inf)) - at for i, at in asked_ns.items()]
    survivors = [
        a.first_ns - a.arrive_ns for a in attempts if a.fate is Fate.COMPLETED and a.first_ns
    ]
    return {
        "arrivals": len(attempts),
        "unique": len(plan),
        "retries": sum(a.number > 0 for a in attempts),
        "refused": fates[Fate.REFUSED],
        "completed": fates[Fate.COMPLETED],
        "abandoned": fates[Fate.ABANDONED],
        "errors": fates[Fate.ERROR],
        "unserved": fates[Fate.UNSERVED],
        "goodput_per_attempt": _share(len(good), len(attempts)),
        "goodput_unique": _share(len(good), len(plan)),
        "goodput_first_arrival": _share(
            sum(first_ns[a.index] - asked_ns[a.index] <= slo.ttft_ns for a in good), len(plan)
        ),
        "goodput_tokens": _share(good_tokens, sum(tokens.values())),
        "ttft_p50_s": quantile_s(survivors, 0.5),
        "ttft_p99_s": quantile_s(survivors, 0.99),
        "ttft_p50_all_s": quantile_s(by_user, 0.5),
        "ttft_p99_all_s": quantile_s(by_user, 0.99),
        "tpot_p50_s": quantile_s(_tpots_ns(attempts), 0.5),
        "tpot_p99_s": quantile_s(_tpots_ns(attempts), 0.99),
        "tokens_per_s": _share(_received_tokens(outcome), s_from_ns(outcome.span_ns)),
        "tokens_useful": good_tokens,
        "preemptions": outcome.preemptions,
        "span_s": s_from_ns(outcome.span_ns),
        "refused_by_reason": _reasons(attempts, Fate.REFUSED),
        "errors_by_reason": _reasons(attempts, Fate.ERROR),
        "is_complete": outcome.is_complete,
        "client_cpu_fraction": outcome.cpu_fraction,
        "client_in_flight_capped": outcome.capped,
        "client_lag_s_max": s_from_ns(outcome.lag_ns_max),
    }


def load_series(outcome: LoadOutcome) -> list[dict[str, Any]]:
    """Return the run second by second: attempts that arrived, ended, and were open at its end."""
    seconds = outcome.span_ns // NS_PER_S + 1
    arrived = Counter(a.arrive_ns // NS_PER_S for a in outcome.attempts)
    ended = Counter(
        (a.fate, a.end_ns // NS_PER_S) for a in outcome.attempts if a.end_ns is not None
    )
    rows = []
    in_flight = 0
    for second in range(seconds):
        by_fate = {fate: ended[fate, second] for fate in Fate}
        in_flight += arrived[second] - sum(by_fate.values())
        rows.append({
            "t_s": second + 1,
            "arrivals": arrived[second],
            "refused": by_fate[Fate.REFUSED],
            "completed": by_fate[Fate.COMPLETED],
            "abandoned": by_fate[Fate.ABANDONED],
            "errors": by_fate[Fate.ERROR],
            "in_flight": in_flight,
        })
    return rows


def load_row(
    outcome: LoadOutcome, slo: Slo, *, load: float, policy: str | None, queue: str | None
) -> dict[str, Any]:
    """Return a row of the JSON output; ``load`` is the mean rate per second that was sent."""
    return {
        "group": "load",
        "load": load,
        "policy": policy,
        "queue": queue,
        "seeds": 1,
        "ours": load_summary(outcome, slo),
        "series": load_series(outcome),
    }


def _tpots_ns(attempts: Sequence[LoadAttempt]) -> list[float]:
    return [
        (a.last_ns - a.first_ns) / (a.output_tokens - 1)
        for a in attempts
        if a.fate is Fate.COMPLETED
        and a.output_tokens > 1
        and a.first_ns is not None
        and a.last_ns is not None
    ]


def _received_tokens(outcome: LoadOutcome) -> int:
    """Count prompts that led to output, and the output that came."""
    prompts = {r.index: r.prompt_tokens for r in outcome.plan}
    return sum(
        prompts[a.index] + a.output_tokens for a in outcome.attempts if a.first_ns is not None
    )


def _reasons(attempts: Sequence[LoadAttempt], fate: Fate) -> dict[str, int]:
    return dict(sorted(Counter(a.reason for a in attempts if a.fate is fate).items()))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
