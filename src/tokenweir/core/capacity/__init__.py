"""What fits on a replica now? One file per answer, one row of ``CAPACITIES`` each."""

from __future__ import annotations

from collections.abc import Callable

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.capacity.engine_queue import EngineQueue
from tokenweir.core.capacity.future_peak import FuturePeak
from tokenweir.core.capacity.hard_gate import HardGate
from tokenweir.core.capacity.occupancy import Occupancy
from tokenweir.core.capacity.protocol import CapacityTest, Shortage
from tokenweir.core.capacity.token_reservation import TokenReservation
from tokenweir.core.capacity.unlimited import Unlimited
from tokenweir.core.errors import ConfigError

__all__ = ["CAPACITIES", "CapacityTest", "Shortage", "capacity_test"]

CAPACITIES: dict[str, Callable[[], CapacityTest]] = {
    "none": Unlimited,
    "concurrency": Concurrency,
    "seats": lambda: Concurrency(in_flight_max=1_024),
    "engine_queue": EngineQueue,
    "token_reservation": TokenReservation,
    "occupancy": Occupancy,
    "hard_gate": HardGate,
    "future_peak": FuturePeak,
}


def capacity_test(name: str) -> CapacityTest:
    """Build the named test with its defaults.

    Raises:
        ConfigError: No such row in ``CAPACITIES``.
    """
    try:
        return CAPACITIES[name]()
    except KeyError:
        raise ConfigError(f"unknown capacity {name!r}, allowed: {', '.join(CAPACITIES)}") from None
