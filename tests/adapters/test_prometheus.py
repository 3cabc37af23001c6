"""The metrics page: names, values, and label sets that cannot grow."""

import random
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tokenweir.adapters.prometheus import PrometheusMetrics
from tokenweir.core.admitter import Admitter
from tokenweir.core.ledger import Settlement
from tokenweir.core.policy import policy
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import NS_PER_MS, ReplicaId, ReservationId
from tokenweir.ports.events import UpstreamFault, Verdict

REPLICA = ReplicaId("one")


def filled() -> PrometheusMetrics:
    """A page on which everything has happened."""
    metrics = PrometheusMetrics()
    pool = metrics.add_pool("chat")
    admitter = Admitter(policy("token"), rng=random.Random(1))
    admitter.add_replica(REPLICA, kv_tokens=1_000)
    admitter.arrive(Request("a", 300, 100), now_ns=1)
    admitter.arrive(Request("big", 9_000, 100), now_ns=2)
    metrics.watch(pool, lambda: (admitter.snapshot(now_ns=3), admitter.refusal_counts()))
    pool.decided(Verdict.ADMIT, ReasonCode.FITS)
    pool.decided(Verdict.REJECT, ReasonCode.TOO_LARGE)
    pool.observed_only(ReasonCode.OVERLOAD_KV)
    pool.waited(7 * NS_PER_MS)
    pool.first_token(80 * NS_PER_MS)
    pool.prompt_counted(360, counted_tokens=300)
    pool.prompt_counted(8, counted_tokens=0)
    pool.settled(Settlement(ReservationId("a"), 400, Usage(300, 20, 128), Outcome.FINISHED))
    pool.settled(Settlement(ReservationId("b"), 400, Usage(0, 0), Outcome.ERROR, is_late=True))
    pool.lease_lost(REPLICA)
    pool.drift_alarm(REPLICA)
    pool.upstream_fault(REPLICA, UpstreamFault.UNREACHABLE)
    metrics.http_refusals[ReasonCode.NOT_FOUND] += 1
    return metrics


def samples(metrics: PrometheusMetrics) -> dict[str, float]:
    """Every sample of the page, as ``name{label=value,...}``."""
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_page_when_things_happened_then_each_is_counted() -> None:
    """Events, and what the core knows when it is asked."""
    found = samples(filled())
    expected = {
        "tokenweir_decisions_total{decision=admit,pool=chat,reason=fits}": 1,
        "tokenweir_refusals_total{pool=chat,prompt_tokens=<=16k,reason=request_too_large}": 1,
        "tokenweir_observed_refusals_total{pool=chat,reason=overload_kv}": 1,
        "tokenweir_settles_total{late=false,outcome=finished,pool=chat}": 1,
        "tokenweir_settles_total{late=true,outcome=error,pool=chat}": 1,
        "tokenweir_prompt_tokens_total{pool=chat}": 300,
        "tokenweir_cached_prompt_tokens_total{pool=chat}": 128,
        "tokenweir_output_tokens_total{pool=chat}": 20,
        "tokenweir_leases_lost_total{pool=chat,replica=one}": 1,
        "tokenweir_drift_alarms_total{pool=chat,replica=one}": 1,
        "tokenweir_upstream_errors_total{kind=unreachable,pool=chat,replica=one}": 1,
        "tokenweir_http_refusals_total{reason=not_found}": 1,
        "tokenweir_in_flight_requests{pool=chat,replica=one}": 1,
        "tokenweir_reserved_tokens{pool=chat,replica=one}": 400,
        "tokenweir_held_tokens{pool=chat,replica=one}": 300,
        "tokenweir_kv_pool_tokens{pool=chat,replica=one}": 1_000,
        "tokenweir_replica_healthy{pool=chat,replica=one}": 1,
        "tokenweir_queue_depth{pool=chat}": 0,
        "tokenweir_class_queue_depth{class=p3,pool=chat}": 0,
        "tokenweir_background_paused{pool=chat}": 0,
        "tokenweir_mode{mode=enforce,pool=chat}": 1,
        "tokenweir_queue_wait_seconds_count{pool=chat}": 1,
        "tokenweir_time_to_first_token_seconds_sum{pool=chat}": 0.08,
        "tokenweir_over_reservation_ratio_sum{pool=chat}": 1.25,
        "tokenweir_prompt_estimate_ratio_sum{pool=chat}": 1.2,
        "tokenweir_prompt_estimate_ratio_count{pool=chat}": 1,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_page_when_background_work_pauses_then_says_so_and_why() -> None:
    """A gauge while it lasts, and a count by cause."""
    metrics = PrometheusMetrics()
    admitter = Admitter(policy("token"), rng=random.Random(1))
    admitter.add_replica(REPLICA, kv_tokens=1_000)
    for name, priority in (("a", Priority.P1), ("b", Priority.P3), ("c", Priority.P1)):
        admitter.arrive(Request(name, 800, 100, priority=priority), now_ns=1)
    admitter.advance(now_ns=1)
    state = (admitter.snapshot(now_ns=1), admitter.refusal_counts())
    metrics.watch(metrics.add_pool("chat"), lambda: state)
    found = samples(metrics)
    assert found["tokenweir_background_paused{pool=chat}"] == 1
    assert found["tokenweir_background_pauses_total{cause=urgent_waiting,pool=chat}"] == 1
    assert found["tokenweir_class_queue_depth{class=p3,pool=chat}"] == 1


def test_page_when_lengths_are_predicted_then_each_mode_says_how_often_it_held() -> None:
    """Sixty equal answers: fifty too early to compare, the rest within what every mode promises."""
    metrics = PrometheusMetrics()
    pool = metrics.add_pool("chat")
    admitter = Admitter(policy("predictive"), rng=random.Random(1))
    admitter.add_replica(REPLICA, kv_tokens=100_000)
    metrics.watch(pool, lambda: (admitter.snapshot(now_ns=3), admitter.refusal_counts()))
    for number in range(60):
        admitter.arrive(Request(str(number), 300, 100), now_ns=2)
        admitter.first_token(ReservationId(str(number)), now_ns=2)
        admitter.settle(
            ReservationId(str(number)), Usage(300, 20), outcome=Outcome.FINISHED, now_ns=2
        )
    admitter.observe(Signals(REPLICA, 3, preemptions_total=4), now_ns=3)
    admitter.observe(Signals(REPLICA, 3, preemptions_total=6), now_ns=3)
    found = samples(metrics)
    expected = {
        "tokenweir_length_predictions_total{mode=conformal,pool=chat}": 10,
        "tokenweir_length_hits_total{mode=conformal,pool=chat}": 10,
        "tokenweir_length_predictions_total{mode=declared,pool=chat}": 60,
        "tokenweir_length_hits_total{mode=declared,pool=chat}": 60,
        "tokenweir_length_predictions_total{mode=sampled,pool=chat}": 10,
        "tokenweir_length_target_fraction{mode=conformal,pool=chat}": 0.9,
        "tokenweir_length_target_fraction{mode=sampled,pool=chat}": 0.5,
        "tokenweir_length_cold_total{pool=chat}": 50,
        "tokenweir_in_flight_limit{pool=chat,replica=one}": 1_024,
        "tokenweir_limit_breaches_total{pool=chat,replica=one}": 0,
        "tokenweir_engine_preemptions_total{pool=chat,replica=one}": 2,
        "tokenweir_headroom_penalty_fraction{pool=chat,replica=one}": 0.02,
        "tokenweir_headroom_spread_fraction{pool=chat,replica=one}": 0,
    }
    assert {name: found.get(name) for name in expected} == expected
    places = [found[f"tokenweir_length_places_total{{pool=chat,tenth={n}}}"] for n in range(1, 11)]
    assert sum(places) == 10


def test_page_when_two_gateways_share_a_process_then_each_has_its_own() -> None:
    """Nothing is kept in a registry that others see."""
    filled()
    assert "tokenweir_settles_total{late=false,outcome=finished,pool=chat}" not in samples(
        PrometheusMetrics()
    )


def test_page_when_checked_by_promtool_then_clean() -> None:
    """The names follow the conventions of those who made the format."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    result = subprocess.run(
        [promtool, "check", "metrics"], input=filled().page(), capture_output=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
