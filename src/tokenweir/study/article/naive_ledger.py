"""How low does a ledger fall that telemetry overwrites and that settles without ids?"""

from __future__ import annotations

from tokenweir.core.units import NS_PER_S
from tokenweir.sim.attempt import Fate
from tokenweir.sim.scenario import Record

__all__ = ["lowest_level"]


def lowest_level(record: Record) -> int:
    """Replay a run's reservations through such a ledger and return its lowest level, in tokens.

    Each admission adds the declared cost, each end subtracts it, and once a second the level is
    replaced by what the engine holds, while the reservations behind it stay open.
    """
    changes: list[tuple[int, int, int]] = []
    for attempt in record.attempts:
        if attempt.is_dispatched:
            cost = attempt.prompt_tokens + attempt.declared_tokens
            changes.append((attempt.arrive_ns, 1, cost))
            if attempt.fate is Fate.COMPLETED and attempt.end_ns is not None:
                changes.append((attempt.end_ns, 1, -cost))
    kv_tokens = record.scenario.profile.kv_tokens
    changes += [(s.time_s * NS_PER_S, 0, round(s.kv_fraction * kv_tokens)) for s in record.samples]
    level = lowest = 0
    for _, is_change, tokens in sorted(changes):
        level = level + tokens if is_change else tokens
        lowest = min(lowest, level)
    return lowest
