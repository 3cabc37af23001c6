"""Who takes part in a sweep, and which of them are tuned first?

A contender is a row of ``POLICIES``; a ``*`` behind its name says that its limit is tuned on every
workload (trace and profile) by the sweep itself, so that a rival is beaten at its best and not at
somebody's guess: first over a grid, then between the neighbours of the best there. One limit serves
all loads of a workload, as it would in a service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenweir.core.capacity import CapacityTest
from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import policy

__all__ = ["KNOBS", "Contender", "Knob", "capacity_with", "contenders_from"]

_GRID = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
# Values tried between two neighbours of the grid.
_BETWEEN = 4


@dataclass(frozen=True, slots=True)
class Knob:
    """What is tuned.

    Attributes:
        field: Of the policy's capacity test.
        grid: Values tried, ascending.
    """

    field: str
    grid: tuple[int, ...] = _GRID

    def around(self, best: int) -> list[int]:
        """Return values between the best of the grid and its neighbours, evenly by ratio."""
        place = self.grid.index(best)
        low, high = self.grid[max(0, place - 1)], self.grid[min(place + 1, len(self.grid) - 1)]
        steps = range(1, _BETWEEN + 1)
        values = [
            round(start * (end / start) ** (step / (_BETWEEN + 1)))
            for start, end in ((low, best), (best, high))
            for step in steps
        ]
        return sorted(set(values) - set(self.grid))


# By policy. What has no row here has no limit that depends on the workload.
KNOBS: dict[str, Knob] = {"concurrency": Knob("in_flight_max")}


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy, and whether its limit is tuned."""

    policy: str
    is_tuned: bool

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.policy + "*" * self.is_tuned


def contenders_from(text: str | Sequence[str]) -> list[Contender]:
    """Read a comma-separated list of policies, a ``*`` behind those that are tuned.

    Raises:
        ConfigError: One is unknown, has nothing to tune, or is named twice.
    """
    words = [word.strip() for word in text.split(",")] if isinstance(text, str) else list(text)
    for word in words:
        name = word.removesuffix("*")
        policy(name)
        if word.endswith("*") and name not in KNOBS:
            raise ConfigError(
                f"policy {name!r} has no limit to tune, allowed with a *: {', '.join(KNOBS)}"
            )
        if words.count(word) > 1:
            raise ConfigError(f"policy {word!r} is named twice, allowed: once")
    return [Contender(word.removesuffix("*"), word.endswith("*")) for word in words]


def capacity_with(name: str, *, limit: int) -> CapacityTest:
    """Return a policy's capacity test with its limit set.

    Raises:
        ConfigError: The policy has none.
    """
    if name not in KNOBS:
        raise ConfigError(f"policy {name!r} has no limit, allowed: {', '.join(KNOBS)}")
    changed: CapacityTest = replace(policy(name).capacity, **{KNOBS[name].field: limit})  # type: ignore[type-var]  # rows of KNOBS are dataclasses
    return changed
