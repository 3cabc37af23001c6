"""How do Prometheus metrics of ours look? Names ``tokenweir_*``, base units, bounded label sets.

Counting happens in plain ints and in histograms without labels; what the core knows is read when
somebody scrapes. So a request costs a few increments, and a chunk nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tokenweir.core.ledger import Settlement
from tokenweir.core.mode import Mode
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.snapshot import AccountView, Snapshot
from tokenweir.core.units import Nanos, ReplicaId, s_from_ns
from tokenweir.ports.events import UpstreamFault, Verdict

__all__ = ["CONTENT_TYPE", "PoolMetrics", "PoolState", "PrometheusMetrics"]

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_WAIT_BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TTFT_BUCKETS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_RATIO_BUCKETS = (0.5, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 8, 16)

PoolState = Callable[[], tuple[Snapshot, Mapping[tuple[ReasonCode, str], int]]]


class PoolMetrics:
    """Counts the events of one pool; an ``EventSink``."""

    def __init__(
        self,
        pool: str,
        *,
        wait: Histogram,
        first_token: Histogram,
        over_reservation: Histogram,
        prompt_estimate: Histogram,
    ) -> None:
        """Start at zero.

        Args:
            pool: The pool's name, a label.
            wait: Of the queue, in seconds, bound to the pool.
            first_token: From arrival to first output, in seconds, bound to the pool.
            over_reservation: Reserved divided by used tokens, bound to the pool.
            prompt_estimate: Estimated divided by counted tokens, bound to the pool.
        """
        self.pool = pool
        self.decisions: Counter[tuple[Verdict, ReasonCode]] = Counter()
        self.observed: Counter[ReasonCode] = Counter()
        self.settles: Counter[tuple[str, bool]] = Counter()
        self.interruptions: Counter[bool] = Counter()
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.leases_lost: Counter[ReplicaId] = Counter()
        self.drift_alarms: Counter[ReplicaId] = Counter()
        self.upstream_faults: Counter[tuple[ReplicaId, UpstreamFault]] = Counter()
        self._wait = wait
        self._ttft = first_token
        self._ratio = over_reservation
        self._estimate = prompt_estimate

    def decided(self, verdict: Verdict, reason: ReasonCode) -> None:
        """Count an answer."""
        self.decisions[verdict, reason] += 1

    def observed_only(self, reason: ReasonCode) -> None:
        """Count a refusal that was not carried out."""
        self.observed[reason] += 1

    def waited(self, queue_wait_ns: Nanos) -> None:
        """Take in a queue wait."""
        self._wait.observe(s_from_ns(queue_wait_ns))

    def first_token(self, ttft_ns: Nanos) -> None:
        """Take in a time to first token."""
        self._ttft.observe(s_from_ns(ttft_ns))

    def prompt_counted(self, estimated_tokens: int, *, counted_tokens: int) -> None:
        """Take in how far an estimate was from the truth."""
        if counted_tokens:
            self._estimate.observe(estimated_tokens / counted_tokens)

    def settled(self, settlement: Settlement) -> None:
        """Count the end of a reservation."""
        self.settles[settlement.outcome.value, settlement.is_late] += 1
        usage = settlement.usage
        self.prompt_tokens += usage.prompt_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens or 0
        if usage.tokens:
            self._ratio.observe(settlement.over_reservation_ratio)

    def interrupted(self, *, was_begun: bool) -> None:
        """Count an interruption."""
        self.interruptions[was_begun] += 1

    def lease_lost(self, replica: ReplicaId) -> None:
        """Count a lost lease."""
        self.leases_lost[replica] += 1

    def drift_alarm(self, replica: ReplicaId) -> None:
        """Count a look at which drift was alarming."""
        self.drift_alarms[replica] += 1

    def upstream_fault(self, replica: ReplicaId, fault: UpstreamFault) -> None:
        """Count a fault of an upstream."""
        self.upstream_faults[replica, fault] += 1


class PrometheusMetrics(Collector):
    """The page: all pools of one process, in a registry of its own."""

    def __init__(self) -> None:
        """Start without pools."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._pools: list[tuple[PoolMetrics, PoolState]] = []
        self.http_refusals: Counter[ReasonCode] = Counter()
        self._wait = self._histogram(
            "queue_wait_seconds", "Time in our queue.", buckets=_WAIT_BUCKETS_S
        )
        self._ttft = self._histogram(
            "time_to_first_token_seconds",
            "From arrival here to the first output.",
            buckets=_TTFT_BUCKETS_S,
        )
        self._ratio = self._histogram(
            "over_reservation_ratio",
            "Reserved tokens divided by used ones, where any were used.",
            buckets=_RATIO_BUCKETS,
        )
        self._estimate = self._histogram(
            "prompt_estimate_ratio",
            "Estimated prompt tokens divided by those that the engine counted.",
            buckets=_RATIO_BUCKETS,
        )
        self._registry.register(self)

    def add_pool(self, name: str) -> PoolMetrics:
        """Return the sink for a pool's events; ``watch`` adds what is read at scrapes."""
        return PoolMetrics(
            name,
            wait=self._wait.labels(name),
            first_token=self._ttft.labels(name),
            over_reservation=self._ratio.labels(name),
            prompt_estimate=self._estimate.labels(name),
        )

    def watch(self, metrics: PoolMetrics, state: PoolState) -> None:
        """Show a pool from now on."""
        self._pools.append((metrics, state))

    def page(self) -> bytes:
        """Return the text of the page."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every family that is not a histogram; called by the registry."""
        states = [(metrics, *state()) for metrics, state in self._pools]
        yield from self._events()
        early = _counter("http_refusals", "Refused before a pool was chosen.", "reason")
        for reason, count in self.http_refusals.items():
            early.add_metric((reason.value,), count)
        yield early
        refusals = _counter("refusals", "Refused requests.", "pool", "reason", "prompt_tokens")
        for metrics, _, counts in states:
            for (reason, bucket), count in counts.items():
                refusals.add_metric((metrics.pool, reason.value, bucket), count)
        yield refusals
        yield from _queues([(metrics.pool, snapshot) for metrics, snapshot, _ in states])
        yield from _accounts([(metrics.pool, snapshot) for metrics, snapshot, _ in states])
        yield from _lengths([(metrics.pool, snapshot) for metrics, snapshot, _ in states])

    def _histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> Histogram:
        return Histogram(
            f"tokenweir_{name}", text, ("pool",), buckets=buckets, registry=self._registry
        )

    def _events(self) -> Iterator[Metric]:
        decisions = _counter("decisions", "Answers to requests.", "pool", "decision", "reason")
        observed = _counter(
            "observed_refusals", "Refusals that observe mode let through.", "pool", "reason"
        )
        settles = _counter("settles", "Closed reservations.", "pool", "outcome", "late")
        interruptions = _counter(
            "interruptions", "Running requests that gave way to more urgent ones.", "pool", "begun"
        )
        prompt = _counter("prompt_tokens", "Prompt tokens of closed reservations.", "pool")
        cached = _counter("cached_prompt_tokens", "Of these, what engines told was cached.", "pool")
        output = _counter("output_tokens", "Output tokens of closed reservations.", "pool")
        leases = _counter("leases_lost", "Holds taken back unrenewed.", "pool", "replica")
        alarms = _counter("drift_alarms", "Looks with lasting drift.", "pool", "replica")
        faults = _counter("upstream_errors", "Faults of engines.", "pool", "replica", "kind")
        for metrics, _ in self._pools:
            pool = metrics.pool
            for (verdict, reason), count in metrics.decisions.items():
                decisions.add_metric((pool, verdict.value, reason.value), count)
            for reason, count in metrics.observed.items():
                observed.add_metric((pool, reason.value), count)
            for (outcome, is_late), count in metrics.settles.items():
                settles.add_metric((pool, outcome, str(is_late).lower()), count)
            for was_begun, count in metrics.interruptions.items():
                interruptions.add_metric((pool, str(was_begun).lower()), count)
            prompt.add_metric((pool,), metrics.prompt_tokens)
            cached.add_metric((pool,), metrics.cached_tokens)
            output.add_metric((pool,), metrics.output_tokens)
            for replica, count in metrics.leases_lost.items():
                leases.add_metric((pool, replica), count)
            for replica, count in metrics.drift_alarms.items():
                alarms.add_metric((pool, replica), count)
            for (replica, fault), count in metrics.upstream_faults.items():
                faults.add_metric((pool, replica, fault.value), count)
        yield from (decisions, observed, settles, interruptions)
        yield from (prompt, cached, output, leases, alarms, faults)


_REPLICA_GAUGES: tuple[tuple[str, str, Callable[[AccountView], float | None]], ...] = (
    ("in_flight_requests", "Requests with the engine.", lambda view: view.in_flight),
    ("reserved_tokens", "Tokens of open reservations.", lambda view: view.reserved_tokens),
    ("held_tokens", "KV tokens that open requests hold by our count.", lambda v: v.held_tokens),
    ("draining_tokens", "KV tokens of aborted requests.", lambda view: view.draining_tokens),
    (
        "unattributed_tokens",
        "Correction of our count by telemetry.",
        lambda view: view.unattributed_tokens,
    ),
    ("drift_tokens", "Engine's count minus ours at the last look.", lambda v: v.drift_tokens),
    ("kv_pool_tokens", "Size of the engine's KV cache.", lambda view: view.kv_tokens),
    ("replica_healthy", "1 while requests may be sent there.", lambda view: view.is_healthy),
    (
        "telemetry_age_seconds",
        "Since the engine last told of its KV cache.",
        lambda view: None if view.telemetry_age_ns is None else s_from_ns(view.telemetry_age_ns),
    ),
    ("in_flight_limit", "Requests allowed by the outer limit.", lambda v: v.in_flight_limit),
    (
        "headroom_spread_fraction",
        "Share of the KV cache kept free for errors of predictions.",
        lambda view: view.spread_fraction,
    ),
    (
        "headroom_penalty_fraction",
        "Share of the KV cache kept free because of preemptions.",
        lambda view: view.penalty_fraction,
    ),
)

_REPLICA_COUNTERS: tuple[tuple[str, str, Callable[[AccountView], int]], ...] = (
    ("limit_breaches", "Cuts of the outer limit.", lambda view: view.limit_breaches),
    ("engine_preemptions", "Preemptions that the engine told of.", lambda v: v.preemptions),
)


def _accounts(pools: list[tuple[str, Snapshot]]) -> Iterator[Metric]:
    for name, text, read in _REPLICA_GAUGES:
        gauge = GaugeMetricFamily(f"tokenweir_{name}", text, labels=("pool", "replica"))
        for pool, snapshot in pools:
            for view in snapshot.accounts:
                value = read(view)
                if value is not None:
                    gauge.add_metric((pool, view.replica), float(value))
        yield gauge
    for name, text, count in _REPLICA_COUNTERS:
        counter = _counter(name, text, "pool", "replica")
        for pool, snapshot in pools:
            for view in snapshot.accounts:
                counter.add_metric((pool, view.replica), count(view))
        yield counter


def _lengths(pools: list[tuple[str, Snapshot]]) -> Iterator[Metric]:
    """Yield how often predicted lengths held; pools that predict none have no series."""
    compared = _counter("length_predictions", "Lengths compared with a mode.", "pool", "mode")
    hits = _counter("length_hits", "Of these, within what the mode promises.", "pool", "mode")
    target = GaugeMetricFamily(
        "tokenweir_length_target_fraction",
        "Share of lengths that a mode promises to cover.",
        labels=("pool", "mode"),
    )
    places = _counter(
        "length_places", "Lengths by tenth of the predicted distribution.", "pool", "tenth"
    )
    cold = _counter("length_cold", "Lengths that came before enough was known.", "pool")
    for pool, snapshot in pools:
        coverage = snapshot.lengths
        if coverage is None:
            continue
        for row in coverage.modes:
            compared.add_metric((pool, row.mode), row.observations)
            hits.add_metric((pool, row.mode), row.hits)
            target.add_metric((pool, row.mode), row.target_fraction)
        for tenth, count in enumerate(coverage.pit_deciles, start=1):
            places.add_metric((pool, str(tenth)), count)
        cold.add_metric((pool,), coverage.cold)
    yield from (compared, hits, target, places, cold)


def _queues(pools: list[tuple[str, Snapshot]]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("tokenweir_queue_depth", "Requests that wait.", labels=("pool",))
    debt = GaugeMetricFamily(
        "tokenweir_queue_debt_tokens", "Tokens of requests that wait.", labels=("pool",)
    )
    rate = GaugeMetricFamily(
        "tokenweir_service_rate_tokens_per_second",
        "How fast reserved tokens become free.",
        labels=("pool",),
    )
    by_class = GaugeMetricFamily(
        "tokenweir_class_queue_depth",
        "Requests that wait, by the class they wait in.",
        labels=("pool", "class"),
    )
    paused = GaugeMetricFamily(
        "tokenweir_background_paused", "1 while background work pauses.", labels=("pool",)
    )
    pauses = _counter("background_pauses", "Pauses of background work.", "pool", "cause")
    mode = GaugeMetricFamily("tokenweir_mode", "1 for the mode.", labels=("pool", "mode"))
    for pool, snapshot in pools:
        depth.add_metric((pool,), snapshot.queued)
        debt.add_metric((pool,), snapshot.queue_debt_tokens)
        if snapshot.rate_tokens_per_s is not None:
            rate.add_metric((pool,), snapshot.rate_tokens_per_s)
        for priority, count in snapshot.queued_by_class.items():
            by_class.add_metric((pool, priority.name.lower()), count)
        paused.add_metric((pool,), float(snapshot.paused is not None))
        for cause, count in snapshot.pauses.items():
            pauses.add_metric((pool, cause.value), count)
        for each in Mode:
            mode.add_metric((pool, each.value), float(snapshot.mode is each))
    yield from (depth, debt, rate, by_class, paused, pauses, mode)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"tokenweir_{name}", text, labels=labels)
