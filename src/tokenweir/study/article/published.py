"""Which figures did the article publish? Its tables, row by row, and nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PUBLISHED", "PUBLISHED_SPIKE_STATES", "SPIKE", "PublishedRow", "SpikeState"]


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row: which run it is, and the figures printed for it, by the names of our JSON.

    The queue's discipline is not stated in the article; ``queues`` lists those we run beside it.
    """

    group: str
    load: str
    policy: str
    figures: Mapping[str, float]
    queues: tuple[str, ...] = ("fifo",)


@dataclass(frozen=True, slots=True)
class SpikeState:
    """Running, queued and KV use at one second of the spike run."""

    time_s: int
    running: int
    waiting: int
    kv_fraction: float


_STEADY_NAMES = (
    "arrivals",
    "refused",
    "completed",
    "goodput_per_attempt",
    "ttft_p50_s",
    "ttft_p99_s",
    "tokens_per_s",
    "preemptions",
)
_RETRY_NAMES = ("arrivals", "retries", "refused", "completed", "goodput_per_attempt", "ttft_p99_s")
_BOTH = ("fifo", "first_fit")
SPIKE = "30-140-30"


def _steady(load: str, policy: str, *figures: float) -> PublishedRow:
    queues = _BOTH if policy == "none" else ("fifo",)
    named = dict(zip(_STEADY_NAMES, figures, strict=True))
    return PublishedRow("steady", load, policy, named, queues)


def _retry(policy: str, figures: tuple[float, ...]) -> PublishedRow:
    return PublishedRow("retry", SPIKE, policy, dict(zip(_RETRY_NAMES, figures, strict=True)))


PUBLISHED: tuple[PublishedRow, ...] = (
    _steady("40", "none", 2367, 0, 2279, 0.963, 0.10, 0.76, 35599, 105),
    _steady("40", "concurrency", 2367, 137, 2143, 0.905, 0.05, 0.26, 33517, 1),
    _steady("40", "token", 2367, 78, 2201, 0.930, 0.05, 0.28, 33925, 0),
    PublishedRow("steady", "40", "token_amort", {"refused": 77}),
    _steady("80", "none", 4770, 0, 2681, 0.276, 1.05, 32.77, 39150, 770),
    _steady("80", "concurrency", 4770, 2317, 2356, 0.494, 0.06, 0.67, 35970, 1),
    _steady("80", "token", 4770, 1899, 2753, 0.577, 0.16, 0.80, 38312, 0),
    _steady("140", "none", 8297, 0, 2892, 0.200, 0.36, 47.10, 39181, 1017),
    _steady("140", "concurrency", 8297, 5823, 2374, 0.284, 0.07, 0.95, 36582, 2),
    _steady("140", "token", 8297, 5130, 3036, 0.361, 0.29, 1.08, 39375, 0),
    PublishedRow("steady", "140", "token_amort", {"goodput_per_attempt": 0.353}),
    PublishedRow("spike", SPIKE, "none", {}, _BOTH),
    PublishedRow("spike", SPIKE, "token", {"goodput_per_attempt": 0.545}),
    PublishedRow("spike", SPIKE, "hard_gate", {"goodput_per_attempt": 0.484}),
    _retry("concurrency", (8790, 4772, 6763, 1928, 0.219, 0.40)),
    _retry("token", (7875, 3964, 5552, 2272, 0.289, 0.67)),
    _retry("token_amort", (7904, 4002, 5587, 2243, 0.284, 0.49)),
)


def _states(*rows: tuple[int, int, int, float]) -> tuple[SpikeState, ...]:
    return tuple(SpikeState(*row) for row in rows)


# By policy, at 15, 20, ... 40 s.
PUBLISHED_SPIKE_STATES: Mapping[str, tuple[SpikeState, ...]] = {
    "none": _states(
        (15, 69, 0, 0.66),
        (20, 136, 470, 1.00),
        (25, 123, 896, 1.00),
        (30, 125, 1372, 0.99),
        (35, 125, 1767, 1.00),
        (40, 113, 1690, 1.00),
    ),
    "token": _states(
        (15, 69, 0, 0.66),
        (20, 124, 0, 0.94),
        (25, 123, 0, 0.93),
        (30, 127, 0, 0.92),
        (35, 135, 0, 0.95),
        (40, 70, 0, 0.62),
    ),
}
