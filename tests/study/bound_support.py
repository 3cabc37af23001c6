"""Oracles for the bound: the program written down naively, and exhaustive scheduling."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np

from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_MS, Nanos
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.program import Pool, Program

STEP_NS = 10 * NS_PER_MS


def engine(**changes: float) -> EngineProfile:
    """Return a small engine with steps of 10 ms."""
    fields: dict[str, float] = {
        "step_ns": STEP_NS,
        "step_tokens_max": 4,
        "chunk_tokens_max": 4,
        "kv_tokens": 40,
        "sequences_max": 4,
    }
    return EngineProfile(name="tiny", source="test", **{**fields, **changes})  # type: ignore[arg-type]


def arrivals_of(rows: Sequence[tuple[Nanos, int, int]]) -> tuple[Arrival, ...]:
    """Return arrivals from (time, prompt, output), sorted by time."""
    return tuple(Arrival(t, p, o) for t, p, o in sorted(rows))


def random_arrivals(rng: random.Random, count: int, **limits: int) -> tuple[Arrival, ...]:
    """Return requests at random times up to ``last_ns``, with lengths from 1 up to a limit."""
    return arrivals_of([
        (
            rng.randrange(limits["last_ns"]),
            rng.randint(1, limits["prompt"]),
            rng.randint(1, limits["output"]),
        )
        for _ in range(count)
    ])


def naive_program(pools: Sequence[Pool], *, requests_count: int) -> Program:
    """Write the program down with one variable per request and bucket of its window."""
    buckets = 1 + max(int(pool.last.max()) for pool in pools if len(pool.last))
    resources = dict.fromkeys(name for pool in pools for name in pool.charges)
    capacity_rows = {name: i * buckets for i, name in enumerate(resources)}
    columns, rows = requests_count, len(resources) * buckets
    capacities = rows
    entries: list[tuple[int, int, float]] = []
    for pool in pools:
        for item, amount, first, last in zip(
            pool.item.tolist(), pool.amount, pool.first.tolist(), pool.last.tolist(), strict=True
        ):
            entries.append((item, rows, -float(amount)))
            for bucket in range(first, last + 1):
                entries += [
                    (columns, capacity_rows[name] + bucket, charge)
                    for name, charge in pool.charges.items()
                ]
                entries.append((columns, rows, 1.0))
                columns += 1
            rows += 1
    entries.sort()
    upper = np.full(columns, np.inf)
    upper[:requests_count] = 1.0
    is_capacity = np.arange(rows) < capacities
    counts = np.bincount([column for column, _, _ in entries], minlength=columns)
    return Program(
        columns=columns,
        column_upper=upper,
        row_lower=np.where(is_capacity, -np.inf, 0.0),
        row_upper=np.where(is_capacity, 1.0, np.inf),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indexes=np.array([row for _, row, _ in entries], dtype=np.int64),
        coefficients=np.array([value for _, _, value in entries]),
        capacity_rows=capacity_rows,
        buckets_count=buckets,
    )


# --- exhaustive scheduling ------------------------------------------------------------------------

# (request, tokens it holds, step at whose end its first token came or -1)
_Open = tuple[int, int, int]


def best_goodput(
    arrivals: Sequence[Arrival],
    profile: EngineProfile,
    slo: Slo,
    *,
    values: Sequence[float],
    pauses: bool,
) -> float:
    """Return the most that any schedule of fixed steps achieves, by trying all of them.

    In every step each open request may work on any tokens that it could, hold its KV and idle,
    or be dropped. Without ``pauses``, one that decodes gets its token in every step.
    """
    search = _Search(arrivals, profile, slo, values=values, pauses=pauses)
    best: dict[tuple[_Open, ...], float] = {(): 0.0}
    for step in range(search.steps):
        following: dict[tuple[_Open, ...], float] = {}
        for state, value in best.items():
            for successor, gain in search.successors(state, step=step):
                reached = value + gain
                if reached > following.get(successor, -1.0):
                    following[successor] = reached
        best = following
    return max(best.values())


class _Search:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        profile: EngineProfile,
        slo: Slo,
        *,
        values: Sequence[float],
        pauses: bool,
    ) -> None:
        self._arrivals = arrivals
        self._profile = profile
        self._slo = slo
        self._values = values
        self._pauses = pauses
        self._begins: dict[int, list[int]] = {}
        for index, arrival in enumerate(arrivals):
            begin = -(-arrival.arrival_ns // profile.step_ns)
            self._begins.setdefault(begin, []).append(index)
        self.steps = 1 + max(
            (a.arrival_ns + slo.ttft_ns + slo.tpot_ns * a.output_tokens) // profile.step_ns
            for a in arrivals
        )

    @cache  # noqa: B019 - a search lives for one test
    def successors(
        self, state: tuple[_Open, ...], *, step: int
    ) -> list[tuple[tuple[_Open, ...], float]]:
        """Return the states after a step, each with what was finished well in it."""
        fresh = tuple((index, 0, -1) for index in self._begins.get(step, ()))
        found: dict[tuple[_Open, ...], float] = {}
        self._choose(
            state + fresh,
            (self._profile.step_tokens_max, self._profile.kv_tokens, self._profile.sequences_max),
            chosen=(),
            gain=0.0,
            step=step,
            found=found,
        )
        return list(found.items())

    def _choose(
        self,
        rest: tuple[_Open, ...],
        room: tuple[int, int, int],
        *,
        chosen: tuple[_Open, ...],
        gain: float,
        step: int,
        found: dict[tuple[_Open, ...], float],
    ) -> None:
        if not rest:
            found[chosen] = max(gain, found.get(chosen, 0.0))
            return
        (index, held, first), others = rest[0], rest[1:]
        arrival = self._arrivals[index]
        tokens, pool, places = room
        self._choose(others, room, chosen=chosen, gain=gain, step=step, found=found)  # dropped
        is_prefill = held < arrival.prompt_tokens
        chunk = min(self._profile.chunk_tokens_max, arrival.prompt_tokens - held)
        most = chunk if is_prefill else 1
        least = 0 if is_prefill or self._pauses else 1
        for work in range(least, most + 1):
            after, takes = held + work, int(work > 0)
            if work > tokens or after > pool or takes > places:
                continue
            begun = step if is_prefill and after == arrival.prompt_tokens else first
            verdict = self._verdict(index, after, begun, step=step)
            if verdict is not None:
                kept = () if verdict else ((index, after, begun),)
                self._choose(
                    others,
                    (tokens - work, pool - after, places - takes),
                    chosen=chosen + kept,
                    gain=gain + verdict * self._values[index],
                    step=step,
                    found=found,
                )

    def _verdict(self, index: int, held: int, first: int, *, step: int) -> int | None:
        """Return 1 for finished well, 0 for still open, None for too late."""
        arrival, now_ns = self._arrivals[index], (step + 1) * self._profile.step_ns
        if first < 0:
            return 0 if now_ns < arrival.arrival_ns + self._slo.ttft_ns else None
        first_ns = (first + 1) * self._profile.step_ns
        if first_ns > arrival.arrival_ns + self._slo.ttft_ns:
            return None
        gaps = arrival.output_tokens - 1
        if now_ns > first_ns + self._slo.tpot_ns * gaps:
            return None
        return int(held == arrival.prompt_tokens + gaps)
