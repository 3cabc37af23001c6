"""/metrics pages as an engine would have shown them, from a run of the engine model."""

from __future__ import annotations

import random

from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_S
from tokenweir.engine.batch import Engine

_LABELS = '{engine="0",model_name="m"}'


def history(engine_profile: EngineProfile, *, seed: int) -> list[str]:
    """Return 40 pages of an engine whose load changes from page to page."""
    rng, engine = random.Random(seed), Engine(engine_profile)
    counted = dict.fromkeys(("steps", "tokens", "decoded", "firsts", "gaps"), 0)
    gaps_s, index, pages = 0.0, 0, []
    for number in range(40):
        target = 4 * min(number, 40 - number) + 2
        for _ in range(200):
            while engine.running + engine.waiting < target:
                engine.submit(
                    f"r{index}",
                    prompt_tokens=rng.randint(50, 1_500),
                    output_tokens=rng.randint(50, 400),
                )
                index += 1
            worked, before = engine.worked_tokens_total, engine.decode_tokens_total
            result = engine.step()
            decoded = engine.decode_tokens_total - before
            counted["steps"] += 1
            counted["tokens"] += engine.worked_tokens_total - worked
            counted["decoded"] += decoded + len(result.first)
            counted["firsts"] += len(result.first)
            counted["gaps"] += decoded
            gaps_s += decoded * result.duration_ns / NS_PER_S
        pages.append(_page(engine, counted, gaps_s=gaps_s))
    return pages


def _page(engine: Engine, counted: dict[str, int], *, gaps_s: float) -> str:
    blocks = engine.profile.kv_tokens // 16
    samples = {
        "num_requests_running": engine.running,
        "num_requests_waiting": engine.waiting,
        "kv_cache_usage_perc": engine.kv_used_tokens / engine.profile.kv_tokens,
        "num_preemptions_total": engine.preemptions_total,
        "iteration_tokens_total_count": counted["steps"],
        "iteration_tokens_total_sum": counted["tokens"],
        "generation_tokens_total": counted["decoded"],
        "time_to_first_token_seconds_count": counted["firsts"],
        "inter_token_latency_seconds_count": counted["gaps"],
        "inter_token_latency_seconds_sum": gaps_s,
    }
    lines = ["# HELP vllm:num_requests_running Requests in the batch."]
    lines += [f"vllm:{name}{_LABELS} {float(value)}" for name, value in samples.items()]
    lines.append(f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}} 1.0')
    return "\n".join(lines) + "\n"
