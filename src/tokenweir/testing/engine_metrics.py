"""What does the emulated engine count, and how does its ``/metrics`` page show it?

Names, labels and buckets are those of vLLM 0.32 (tests/fixtures/wire), so that what reads the
emulated engine reads the real one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from tokenweir.engine.batch import Engine, StepResult
from tokenweir.testing.engine_wire import SERVED_MODEL

__all__ = ["EngineMetrics", "BucketCounts"]

_BLOCK_TOKENS = 16
_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
_FIRST_TOKEN_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_STEP_TOKENS_BUCKETS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip
_REQUEST_BUCKETS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


class BucketCounts:
    """A histogram; takes many equal observations at once."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, *, times: int = 1) -> None:
        """Count ``times`` observations of the same value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def family(self, name: str, help_text: str) -> HistogramMetricFamily:
        """Return the histogram as a metric family with vLLM's labels."""
        buckets, total = [], 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        family = HistogramMetricFamily(name, help_text, labels=("engine", "model_name"))
        family.add_metric(("0", SERVED_MODEL), buckets, self._sum)
        return family


class EngineMetrics:
    """The counters that the model does not keep itself, and the page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prompt_tokens_total = 0
        self.generation_tokens_total = 0
        self.rejections_total = 0
        self.finished: Counter[str] = Counter()
        self.first_token_s = BucketCounts(_FIRST_TOKEN_BUCKETS_S)
        self.gap_s = BucketCounts(_GAP_BUCKETS_S)
        self.request_s = BucketCounts(_REQUEST_BUCKETS_S)
        self.step_tokens = BucketCounts(_STEP_TOKENS_BUCKETS)
        self._worked_tokens = 0
        self._registry = CollectorRegistry()
        self._registry.register(_Page(self))

    def observe_step(self, result: StepResult) -> None:
        """Count the tokens of the step that just ended; a first token counts beside its prefill."""
        worked_tokens = self._engine.worked_tokens_total
        self.step_tokens.observe(worked_tokens - self._worked_tokens + len(result.first))
        self._worked_tokens = worked_tokens

    def page(self) -> bytes:
        """Return the page in Prometheus text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterator[Metric]:
        """Yield every family of the page."""
        engine = self._engine
        kv_tokens = engine.profile.kv_tokens
        yield _gauge("num_requests_running", engine.running, help_text="Requests in the batch.")
        yield _gauge(
            "num_requests_waiting", engine.waiting, help_text="Requests waiting to be processed."
        )
        yield _gauge(
            "kv_cache_usage_perc",
            engine.kv_used_tokens / kv_tokens,
            help_text="KV-cache usage. 1 means 100 percent usage.",
        )
        yield _counter(
            "num_preemptions", engine.preemptions_total, help_text="Preemptions of the engine."
        )
        yield _counter(
            "prompt_tokens", self.prompt_tokens_total, help_text="Prefill tokens processed."
        )
        yield _counter(
            "generation_tokens", self.generation_tokens_total, help_text="Output tokens."
        )
        yield from self._labelled()
        yield self.first_token_s.family(
            "vllm:time_to_first_token_seconds", "Time to first token in seconds."
        )
        yield self.gap_s.family("vllm:inter_token_latency_seconds", "Gap between two tokens.")
        yield self.step_tokens.family("vllm:iteration_tokens_total", "Tokens of a step.")
        yield self.request_s.family("vllm:e2e_request_latency_seconds", "Whole time of a request.")

    def _labelled(self) -> Iterator[Metric]:
        kv_tokens = self._engine.profile.kv_tokens
        finished = CounterMetricFamily(
            "vllm:request_success",
            "Requests that ended, by reason.",
            labels=("engine", "finished_reason", "model_name"),
        )
        for reason in _FINISHED_REASONS:
            finished.add_metric(("0", reason, SERVED_MODEL), self.finished[reason])
        yield finished
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Requests refused by a queue limit, by reason.",
            labels=("model_name", "reason"),
        )
        rejections.add_metric((SERVED_MODEL, "max_num_queued_reqs"), self.rejections_total)
        yield rejections
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the cache configuration.",
            labels=("block_size", "engine", "kv_cache_size_tokens", "num_gpu_blocks"),
        )
        blocks = kv_tokens // _BLOCK_TOKENS
        info.add_metric((str(_BLOCK_TOKENS), "0", str(kv_tokens), str(blocks)), 1)
        yield info


class _Page:
    """What prometheus_client asks for at each scrape."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()


def _gauge(name: str, value: float, *, help_text: str) -> Metric:
    family = GaugeMetricFamily(f"vllm:{name}", help_text, labels=("engine", "model_name"))
    family.add_metric(("0", SERVED_MODEL), value)
    return family


def _counter(name: str, value: float, *, help_text: str) -> Metric:
    family = CounterMetricFamily(f"vllm:{name}", help_text, labels=("engine", "model_name"))
    family.add_metric(("0", SERVED_MODEL), value)
    return family
