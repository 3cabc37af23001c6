"""The emulated engine's metrics page."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tokenweir.engine.batch import Engine
from tokenweir.profiles import profile
from tokenweir.testing.engine_metrics import BucketCounts, EngineMetrics

RECORDED = Path(__file__).parents[1] / "fixtures" / "wire" / "metrics_overloaded.txt"


def labels_by_sample(text: str) -> dict[str, set[str]]:
    """Return the label names of each sample name on a page."""
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_page_when_parsed_then_names_and_labels_are_those_of_vllm() -> None:
    """Every sample of ours is on the recorded page, with labels that are there too."""
    ours = labels_by_sample(EngineMetrics(Engine(profile("demo"))).page().decode("ascii"))
    theirs = labels_by_sample(RECORDED.read_text(encoding="utf-8"))
    assert {name for name in ours if name not in theirs} == set()
    assert {name for name, labels in ours.items() if not labels <= theirs[name]} == set()


def test_page_when_the_engine_works_then_its_state_is_shown() -> None:
    """Use of the pool, the batch, the line and the size of the cache stand on the page."""
    engine = Engine(profile("demo"))
    metrics = EngineMetrics(engine)
    engine.submit("a", prompt_tokens=2_800, output_tokens=10)
    engine.submit("b", prompt_tokens=5_000, output_tokens=10)
    engine.step()
    samples = {
        (sample.name, sample.labels.get("kv_cache_size_tokens", "")): sample.value
        for family in text_string_to_metric_families(metrics.page().decode("ascii"))
        for sample in family.samples
    }
    assert samples["vllm:kv_cache_usage_perc", ""] == 0.5
    assert samples["vllm:num_requests_running", ""] == 1
    assert samples["vllm:num_requests_waiting", ""] == 1
    assert samples["vllm:cache_config_info", "5600"] == 1


def test_page_when_steps_ran_then_their_tokens_are_counted() -> None:
    """As vLLM does: prefill and first token together, then a token a step."""
    engine = Engine(profile("demo"))
    metrics = EngineMetrics(engine)
    engine.submit("a", prompt_tokens=90, output_tokens=4)
    for _ in range(4):
        metrics.observe_step(engine.step())
    samples = {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(metrics.page().decode("ascii"))
        for sample in family.samples
    }
    assert samples["vllm:iteration_tokens_total_sum", ""] == 94
    assert samples["vllm:iteration_tokens_total_bucket", "1.0"] == 3
    assert samples["vllm:iteration_tokens_total_bucket", "128.0"] == 4


def test_histogram_when_observed_at_a_bound_then_it_counts_below_it() -> None:
    """Buckets include their upper bound, and several observations can be one call."""
    histogram = BucketCounts((0.1, 1.0))
    histogram.observe(0.1, times=3)
    histogram.observe(5.0)
    samples = {
        (sample.name, sample.labels.get("le", "")): sample.value
        for sample in histogram.family("vllm:x_seconds", "x").samples
    }
    assert samples["vllm:x_seconds_bucket", "0.1"] == 3
    assert samples["vllm:x_seconds_bucket", "1.0"] == 3
    assert samples["vllm:x_seconds_bucket", "+Inf"] == 4
    assert samples["vllm:x_seconds_count", ""] == 4
