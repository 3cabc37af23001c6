"""What does each flaw of the article change? One row each: its way, and corrected.

Every flaw is a switch of the simulator (a field of ``Experiment``, or which figure of a run is
read); off is the article's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import mean, stdev

import numpy as np

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.attempt import Fate
from tokenweir.sim.clients import article_clients, client_model
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.scenario import Record
from tokenweir.sim.workload import article_workload, uniforms
from tokenweir.study.article.naive_ledger import lowest_level
from tokenweir.study.article.rows import RUN_S, SPIKE_SEGMENTS
from tokenweir.study.experiment import Experiment, run_experiment, workload_of
from tokenweir.study.parallel import map_jobs

__all__ = ["FLAWS", "Flaw", "FlawRow", "flaw_rows"]

_STEADY_80 = Experiment("token", segments=((RUN_S, 80.0),), checks=False)
_SPIKE = Experiment("token", segments=SPIKE_SEGMENTS, checks=False)
_RETRY = replace(_SPIKE, clients=article_clients())


@dataclass(frozen=True, slots=True)
class FlawRow:
    """One line of the table; texts hold the figures."""

    flaw: str
    articles_way: str
    corrected: str


@dataclass(frozen=True, slots=True)
class Flaw:
    """A flaw's name, and what measures it: seeds in, (article's way, corrected) out."""

    name: str
    measure: Callable[[Sequence[int]], tuple[str, str]]


def flaw_rows(
    *, seeds: Sequence[int], processes: int = 1, on_flaw: Callable[[], None] = lambda: None
) -> list[FlawRow]:
    """Measure every flaw, in order; the result does not depend on the number of processes."""
    jobs = [(index, tuple(seeds)) for index in range(len(FLAWS))]
    rows: list[FlawRow] = []
    with closing(map_jobs(_measured, jobs, processes=processes)) as measured:
        for row in measured:
            rows.append(row)
            on_flaw()
    return rows


def _measured(job: tuple[int, tuple[int, ...]]) -> FlawRow:
    index, seeds = job
    way, corrected = FLAWS[index].measure(seeds)
    return FlawRow(FLAWS[index].name, way, corrected)


def _records(experiment: Experiment, seeds: Sequence[int]) -> list[Record]:
    return [run_experiment(experiment, seed=seed) for seed in seeds]


def _mean(experiment: Experiment, seeds: Sequence[int], *, figure: str) -> float:
    return mean(
        float(summary(record, experiment.slo)[figure]) for record in _records(experiment, seeds)
    )


def _per_attempt(seeds: Sequence[int]) -> tuple[str, str]:
    storm = [summary(r, Slo()) for r in _records(_RETRY, seeds)]
    calm = _mean(_SPIKE, seeds, figure="goodput_unique")
    way = mean(s["goodput_per_attempt"] for s in storm)
    unique = mean(s["goodput_unique"] for s in storm)
    return (
        f"retries cut goodput per attempt from {calm:.3f} to {way:.3f}",
        f"per unique request it goes from {calm:.3f} to {unique:.3f}",
    )


def _declared(seeds: Sequence[int]) -> tuple[str, str]:
    ledger = replace(_STEADY_80, policy="ledger")
    exact = _mean(ledger, seeds, figure="goodput_unique")
    mix = _mean(replace(ledger, declared="mix"), seeds, figure="goodput_unique")
    return (
        f"declared = actual: full reservation reaches {exact:.3f} at 80/s",
        f"declared 512/1,024/4,096: {mix:.3f}",
    )


def _cut(seeds: Sequence[int]) -> tuple[str, str]:
    cut = _mean(_STEADY_80, seeds, figure="goodput_unique")
    drained = _mean(replace(_STEADY_80, drains=True), seeds, figure="goodput_unique")
    return f"token at 80/s, cut at 60 s: {cut:.3f}", f"drained: {drained:.3f}"


def _survivors(seeds: Sequence[int]) -> tuple[str, str]:
    figures = [summary(r, Slo()) for r in _records(replace(_STEADY_80, policy="none"), seeds)]
    way = mean(s["ttft_p99_s"] for s in figures)
    served = mean(s["completed"] / s["unique"] for s in figures)
    everyone = "infinite" if any(s["ttft_p99_all_s"] is None for s in figures) else "finite"
    return (
        f"none at 80/s: TTFT p99 of the completed {way:.1f} s",
        f"of all: {everyone}, since {1 - served:.0%} were never served",
    )


def _common_numbers(seeds: Sequence[int]) -> tuple[str, str]:
    """Compare two policies under retries, on requests of their own and on the same ones."""
    apart, paired, unique = [], [], []
    for seed in seeds:
        token = summary(run_experiment(_RETRY, seed=seed), Slo())
        amort = replace(_RETRY, policy="token_amort")
        same = summary(run_experiment(amort, seed=seed), Slo())
        other = summary(run_experiment(amort, seed=seed + 1_000), Slo())
        paired.append(token["goodput_unique"] - same["goodput_unique"])
        apart.append(token["goodput_unique"] - other["goodput_unique"])
        unique.append((token["unique"], other["unique"]))
    if len(seeds) < 2:
        return (
            f"policies see {unique[0][0]:,} and {unique[0][1]:,} unique requests",
            f"both see the same {unique[0][0]:,}",
        )
    return (
        f"token minus token_amort {mean(apart):+.4f}, s.d. over seeds {stdev(apart):.4f}",
        f"on common random numbers {mean(paired):+.4f}, s.d. {stdev(paired):.4f}",
    )


def _untuned(seeds: Sequence[int]) -> tuple[str, str]:
    by_limit = {}
    for limit in (100, 105, 110, 115, 120):
        tuned = replace(_STEADY_80, policy="concurrency", capacity=Concurrency(limit))
        by_limit[limit] = _mean(tuned, seeds, figure="goodput_tokens")
    best = max(by_limit, key=lambda limit: by_limit[limit])
    token = _mean(_STEADY_80, seeds, figure="goodput_tokens")
    return (
        f"limit 100: token goodput {by_limit[100]:.3f} against {token:.3f} of token",
        f"limit {best}: {by_limit[best]:.3f} against {token:.3f}",
    )


def _small_preferred(seeds: Sequence[int]) -> tuple[str, str]:
    figures = [summary(r, Slo()) for r in _records(_STEADY_80, seeds)]
    requests = mean(s["goodput_unique"] for s in figures)
    tokens = mean(s["goodput_tokens"] for s in figures)
    buckets = ", ".join(
        f"{label} {mean(s['buckets'][label]['goodput_unique'] for s in figures):.2f}"
        for label in figures[0]["buckets"]
        if all(label in s["buckets"] for s in figures)
    )
    return (
        f"token at 80/s: {requests:.3f} of requests",
        f"{tokens:.3f} of tokens; by prompt size {buckets}",
    )


def _bistable(seeds: Sequence[int]) -> tuple[str, str]:
    """After the spike, at 0.68 of capacity: does the backlog go by itself?

    Patient clients' is gone about 155 s after it, so those that retry are looked at later still.
    """
    spike = ((15.0, 30.0), (35.0, 140.0))
    patient = Experiment("none", segments=(*spike, (260.0, 30.0)), drains=True, checks=False)
    # With three retries it recovers; more of them only take longer to simulate.
    retrying = Experiment(
        "none",
        segments=(*spike, (230.0, 30.0)),
        clients=client_model("exponential", retries_max=4, timeout_ns=5 * NS_PER_S),
        checks=False,
    )
    way = mean(_backlog_gone_s(r) for r in _records(patient, seeds))
    late = mean(_goodput_between(r, start_s=210, end_s=225) for r in _records(retrying, seeds))
    return (
        f"no timeout, no retry: the backlog is gone {way - 35:.0f} s after the spike",
        f"timeout 5 s, 4 retries: goodput still {late:.3f} three minutes after it",
    )


def _backlog_gone_s(record: Record) -> float:
    waiting = [s.time_s for s in record.samples if s.waiting_in_engine > 0]
    return float(max(waiting, default=0))


def _goodput_between(record: Record, *, start_s: int, end_s: int) -> float:
    """Return the share of unique requests arriving then whose user saw a token within the SLO."""
    slo = Slo()
    window = range(start_s * NS_PER_S, end_s * NS_PER_S)
    arrived = {i for i, a in enumerate(record.scenario.arrivals) if a.arrival_ns in window}
    good = {
        a.index
        for a in record.attempts
        if a.index in arrived
        and a.fate is Fate.COMPLETED
        and a.first_ns is not None
        and a.first_ns - record.scenario.arrivals[a.index].arrival_ns <= slo.ttft_ns
    }
    return len(good) / max(1, len(arrived))


def _fixed_pace(seeds: Sequence[int]) -> tuple[str, str]:
    """Let a step take as long as the kernels of an 8B model on an A100 need for it."""
    slowing = replace(profile("article"), step_ns=9_270_000, token_ns=43_700.0, kv_token_ns=125.0)
    fixed = [_tpot_p99_ms(r) for r in _records(_STEADY_80, seeds)]
    lengths = [(a.prompt_tokens, a.output_tokens) for a in workload_of(_STEADY_80, seed=seeds[0])]
    ratio = slowing.capacity_rps(lengths) / profile("article").capacity_rps(lengths)
    varying = replace(_STEADY_80, engine=slowing, segments=((RUN_S, 80.0 * ratio),))
    slowed = [_tpot_p99_ms(r) for r in _records(varying, seeds)]
    return (
        f"TPOT p99 {mean(fixed):.0f} ms whatever runs, SLO 80 ms",
        f"with step times of a real engine, at the same load: {mean(slowed):.0f} ms",
    )


def _tpot_p99_ms(record: Record) -> float:
    paces = sorted(
        (a.end_ns - a.first_ns) / (a.output_tokens - 1) / 1e6
        for a in record.attempts
        if a.end_ns and a.first_ns and a.fate is Fate.COMPLETED and a.output_tokens > 1
    )
    return paces[int(0.99 * len(paces))]


def _overwriting(seeds: Sequence[int]) -> tuple[str, str]:
    records = _records(replace(_SPIKE, drains=True), seeds)
    lowest = min(lowest_level(record) for record in records)
    after = max(record.used_tokens_after for record in records)
    return (
        f"overwritten once a second, the level falls to {lowest:,} tokens",
        f"drift kept apart: never below 0, and {after} after draining",
    )


def _sums(seeds: Sequence[int]) -> tuple[str, str]:
    costs = np.concatenate([
        [a.prompt_tokens + a.output_tokens for a in article_workload(((RUN_S, 80.0),), seed=s)]
        for s in seeds
    ])
    picks = (uniforms(seeds[0], "clients", size=(20_000, 100)) * len(costs)).astype(np.int64)
    sums = costs[picks].sum(axis=1)
    one = float(np.quantile(costs, 0.99) / np.quantile(costs, 0.5))
    many = float(np.quantile(sums, 0.99) / sums.mean())
    return (
        f"margin = P99/P50 of one request = {one:.2f}",
        f"P99/mean of 100 in flight = {many:.2f}",
    )


def _one_seed(seeds: Sequence[int]) -> tuple[str, str]:
    values = [float(summary(r, Slo())["goodput_unique"]) for r in _records(_STEADY_80, seeds)]
    if len(values) < 2:
        return f"token at 80/s: {values[0]:.3f}", "ask for more with --seeds"
    half = 1.96 * stdev(values) / len(values) ** 0.5
    return (
        f"token at 80/s: {values[0]:.3f}",
        f"{mean(values):.3f} +- {half:.3f} (95 %, {len(values)} seeds)",
    )


FLAWS: tuple[Flaw, ...] = (
    Flaw("1 goodput per attempt, not per unique request", _per_attempt),
    Flaw("2 declared maximum = actual output", _declared),
    Flaw("3 runs are cut, so what is in flight counts as failed", _cut),
    Flaw("4 percentiles over survivors", _survivors),
    Flaw("5 different arrivals per policy", _common_numbers),
    Flaw("6 the concurrency baseline is not tuned", _untuned),
    Flaw("7 request goodput rewards refusing big requests", _small_preferred),
    Flaw("8 bistability is asserted, not shown", _bistable),
    Flaw("9 fixed decode pace, so TPOT never binds", _fixed_pace),
    Flaw("10 calibration overwrites what is used", _overwriting),
    Flaw("11 margins of one request applied to a sum", _sums),
    Flaw("12 one seed", _one_seed),
)
