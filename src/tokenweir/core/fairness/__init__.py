"""Whose turn is it among the waiting tenants of a class? One file per answer, one row each."""

from __future__ import annotations

from collections.abc import Callable

from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness.arrival import FirstCome
from tokenweir.core.fairness.protocol import Fairness, FairnessConfig
from tokenweir.core.fairness.refusals import RefusalCharges
from tokenweir.core.fairness.round_robin import RoundRobin
from tokenweir.core.fairness.start_time import StartTime
from tokenweir.core.fairness.virtual_counter import VirtualCounter

__all__ = ["FAIRNESS", "Fairness", "FairnessConfig", "RefusalCharges", "fairness_row"]

FAIRNESS: dict[str, Callable[[FairnessConfig], Fairness]] = {
    "vtc": VirtualCounter,
    "sfq": StartTime,
    "round_robin": RoundRobin,
    "fcfs": FirstCome,
}


def fairness_row(name: str, config: FairnessConfig) -> Fairness:
    """Build the named row.

    Raises:
        ConfigError: No such row in ``FAIRNESS``.
    """
    try:
        row = FAIRNESS[name]
    except KeyError:
        raise ConfigError(f"unknown fairness {name!r}, allowed: {', '.join(FAIRNESS)}") from None
    return row(config)
