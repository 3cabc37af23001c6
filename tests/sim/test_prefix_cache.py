"""Runs with a prefix cache: what it spares, what is discounted for it, and what is reported."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tokenweir.core.admitter import Admitter
from tokenweir.core.decision import Decision
from tokenweir.core.prefix import Prefix
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Request
from tokenweir.core.units import Nanos
from tokenweir.profiles import profile
from tokenweir.sim.attempt import Fate
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.reuse import least_unread_tokens
from tokenweir.sim.scenario import Outage, Record
from tokenweir.sim.traces import Arrival
from tokenweir.study.experiment import Experiment, admitter_of, run_experiment
from tokenweir.study.replay import capacity_rps

S = 1_000_000_000
SMALL = EngineProfile(
    name="small",
    source="made up for these tests",
    step_ns=10_000_000,
    step_tokens_max=64,
    chunk_tokens_max=64,
    kv_tokens=6_144,
    sequences_max=16,
)


def _sessions(seed: int, *, count: int = 12, turns: int = 8) -> tuple[Arrival, ...]:
    """Return conversations whose prompts grow by two or three blocks of 32 a turn."""
    rng = random.Random(seed)
    arrivals = []
    for session in range(count):
        blocks, now_ns = 1, rng.randrange(2 * S)
        for _ in range(turns):
            blocks += rng.choice([2, 3])
            ids = (0, *(100 * (session + 1) + i for i in range(1, blocks)))
            prompt = 32 * blocks + rng.randrange(32)
            arrivals.append(Arrival(now_ns, prompt, rng.randint(4, 30), prefix=Prefix(32, ids)))
            now_ns += rng.randrange(S // 2, S)
    return tuple(sorted(arrivals, key=lambda a: a.arrival_ns))


def _experiment(policy: str = "predictive", **changes: object) -> Experiment:
    base = Experiment(
        policy,
        arrivals=_sessions(1),
        drains=True,
        queue=QueueLimits(items_max=50, wait_ns_max=S, first_token_slo_ns=S),
        engine=SMALL,
        kv="prefix_cache",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def _work_adds_up(record: Record) -> None:
    spared = sum(engine.spared_tokens for engine in record.engines)
    needed = sum(
        a.prompt_tokens + a.output_tokens - 1 for a in record.attempts if a.fate is Fate.COMPLETED
    )
    assert record.worked_tokens == needed - spared + record.recomputed_tokens


def test_least_unread_when_prompts_grow_then_only_what_is_new_counts() -> None:
    """Of 100, 130 and again 128 tokens in blocks of 32: all, all but 96, and its last block."""
    arrivals = [
        Arrival(0, 100, 1, prefix=Prefix(32, (1, 2, 3))),
        Arrival(1, 130, 1, prefix=Prefix(32, (1, 2, 3, 4))),
        Arrival(2, 128, 1, prefix=Prefix(32, (1, 2, 3, 4))),
        Arrival(3, 70, 1, prefix=Prefix(32, (9, 2))),
        Arrival(4, 50, 1),
    ]
    assert least_unread_tokens(arrivals) == [100, 34, 32, 70, 50]


def test_capacity_when_there_is_a_prefix_cache_then_only_what_has_to_be_read_is_work() -> None:
    """1 / mean engine seconds, of 100 + 4 and 34 + 4 tokens; the second looks at 96 before."""
    engine = profile("8b-h100")
    arrivals = (
        Arrival(0, 100, 5, prefix=Prefix(32, (1, 2, 3))),
        Arrival(1, 130, 5, prefix=Prefix(32, (1, 2, 3, 4))),
    )
    experiment = _experiment(arrivals=arrivals, engine=engine)
    total_ns = engine.request_ns(100, 5) + engine.request_ns(130, 5, cached_tokens=96)
    assert capacity_rps(arrivals, experiment) == pytest.approx(2 * S / total_ns)
    whole_ns = engine.request_ns(100, 5) + engine.request_ns(130, 5)
    assert capacity_rps(arrivals, replace(experiment, kv="blocks")) == pytest.approx(
        2 * S / whole_ns
    )
    spared_ns = engine.request_ns(130, 5) - engine.request_ns(130, 5, cached_tokens=96)
    per_token_ns = engine.duration_ns(tokens=2_048) / 2_048
    pairs = 96 * 96 / 2
    assert spared_ns == pytest.approx(96 * per_token_ns + pairs * engine.attention_ns)


@pytest.mark.parametrize("policy", ["none", "token", "ledger", "predictive"])
def test_run_when_prompts_share_then_less_is_read_and_work_adds_up(policy: str) -> None:
    """Most of what conversations send again is found, and goodput is no lower for it."""
    figures = {}
    for kv in ("blocks", "prefix_cache"):
        record = run_experiment(_experiment(policy, kv=kv), seed=1)
        _work_adds_up(record)
        assert record.used_tokens_after == 0
        figures[kv] = summary(record, Slo())
    with_cache = figures["prefix_cache"]
    assert "prefix_cache" not in figures["blocks"]
    assert with_cache["prefix_cache"]["hit_fraction"] > 0.3
    assert with_cache["goodput_unique"] > figures["blocks"]["goodput_unique"]


def test_index_when_engine_evicts_then_its_precision_and_the_discount_fall() -> None:
    """Where long answers take the pool, what was sent is not what is cached."""
    rows = []
    for kv_tokens, more in ((16_384, 0), (1_536, 200)):
        engine = replace(SMALL, kv_tokens=kv_tokens)
        arrivals = tuple(replace(a, output_tokens=a.output_tokens + more) for a in _sessions(1))
        experiment = _experiment("none", engine=engine, arrivals=arrivals)
        record = run_experiment(experiment, seed=1)
        _work_adds_up(record)
        rows.append(summary(record, Slo())["prefix_cache"])
    roomy, tight = rows
    assert roomy["index_precision"] == roomy["index_recall"] == 1.0
    assert roomy["discount_factor"] > 0.7
    assert tight["index_precision"] < 0.9
    assert tight["discount_factor"] < roomy["discount_factor"]
    assert tight["hit_fraction"] < roomy["hit_fraction"]


class _Listening(Admitter):
    """An admitter that notes what requests say of themselves."""

    seen: list[Request]

    def arrive(self, request: Request, *, now_ns: Nanos) -> Decision:
        """Note and decide."""
        self.seen.append(request)
        return super().arrive(request, now_ns=now_ns)


def _discounts(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> list[int]:
    seen: list[Request] = []
    monkeypatch.setattr(_Listening, "seen", seen, raising=False)

    def build(chosen: Experiment, *, seed: int) -> Admitter:
        plain = admitter_of(chosen, seed=seed)
        return _Listening(plain.policy, rng=random.Random(seed), config=plain.config)

    monkeypatch.setattr("tokenweir.study.experiment.admitter_of", build)
    run_experiment(experiment, seed=1)
    return [request.cached_prompt_tokens for request in seen]


def test_discount_when_a_prompt_was_sent_before_then_the_admitter_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second prompt has 96 tokens in the index, of which half is believed at first."""
    prefix = Prefix(32, (1, 2, 3))
    arrivals = tuple(Arrival(n * S, 100, 3, prefix=prefix) for n in range(2))
    assert _discounts(monkeypatch, _experiment(arrivals=arrivals)) == [0, 48]
    assert _discounts(monkeypatch, _experiment(arrivals=arrivals, kv="blocks")) == [0, 0]
    assert _discounts(monkeypatch, _experiment(arrivals=arrivals, discounts=False)) == [0, 0]


def test_discount_when_the_engine_has_died_then_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine that starts again has read nothing; of two the one that lives still counts."""
    prefix = Prefix(32, (1, 2, 3))
    arrivals = tuple(Arrival(n * S, 100, 3, prefix=prefix) for n in range(2))
    outages = (Outage(0, S // 2, S // 2 + 1),)
    experiment = _experiment(arrivals=arrivals, outages=outages)
    assert _discounts(monkeypatch, experiment) == [0, 0]
    # With two replicas that may take it, one of which has read it, half of a half.
    assert _discounts(monkeypatch, _experiment(arrivals=arrivals, replicas=2)) == [0, 24]


@pytest.mark.case("CASE-F8")
@pytest.mark.parametrize("kv", ["whole", "blocks", "prefix_cache"])
def test_recompute_when_engine_preempts_then_its_share_of_all_work_is_reported(kv: str) -> None:
    """An engine that is overrun redoes work; the summary says how much of all that is."""
    arrivals = tuple(Arrival(n * 20_000_000, 150, 120) for n in range(60))
    engine = replace(SMALL, step_tokens_max=256, chunk_tokens_max=256, kv_tokens=2_048)
    record = run_experiment(_experiment("none", arrivals=arrivals, engine=engine, kv=kv), seed=1)
    figures = summary(record, Slo())
    needed = sum(a.prompt_tokens + a.output_tokens - 1 for a in arrivals)
    assert figures["completed"] == len(arrivals)
    assert figures["preemptions"] > 0
    redone = record.worked_tokens - needed
    assert redone > 0
    assert figures["tokens_recomputed"] == redone
    assert figures["recomputed_fraction"] == redone / record.worked_tokens
