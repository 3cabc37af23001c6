"""Which resource of an engine is used up first by this mix of requests?

Model: requests of p prompt and o output tokens, P and O in the mean, in a steady state with B of
them decoding. Each stays o steps and brings p prompt tokens, so that a step works on B (1 + P / O)
tokens. Contexts weigh by how long they are held: k = mean of o (p + o / 2) / O.
Rule: the largest B that each resource allows,

    kv      B k <= pool
    pace    T(B) <= TPOT bound, T from the profile
    seats   B <= sequences_max
    budget  B (1 + P / O) <= step_tokens_max

and the least of the first three binds. Where ``budget`` allows less still, prompts wait for a place
in a step before that: the first token breaks first, and the others follow as the line grows.
Trade-off: means only; a burst of long prompts fills a pool that in the mean is half empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenweir.core.profile import EngineProfile, attention_pairs
from tokenweir.core.units import Nanos
from tokenweir.sim.traces import Arrival

__all__ = ["binding_of", "seats_allowed"]

# More than any engine decodes at once; where the pace is never reached, it allows so many.
_SEATS_MAX = 1 << 20


def binding_of(allowed: Mapping[str, float], *, with_budget: bool = False) -> str:
    """Return the resource that binds: kv, pace or seats, or budget where that is asked for.

    Args:
        allowed: As ``seats_allowed`` has it.
        with_budget: Whether a step's budget counts as one.
    """
    names = [name for name in allowed if with_budget or name != "budget"]
    return min(names, key=lambda name: allowed[name])


def seats_allowed(
    arrivals: Sequence[Arrival], engine: EngineProfile, *, tpot_ns: Nanos
) -> dict[str, float]:
    """Return how many requests each resource lets decode at once.

    Args:
        arrivals: The mix, at least one.
        engine: The engine.
        tpot_ns: Bound on the pace.
    """
    count = len(arrivals)
    prompt = sum(a.prompt_tokens for a in arrivals) / count
    output = sum(a.output_tokens for a in arrivals) / count
    held = sum(a.output_tokens * (a.prompt_tokens + a.output_tokens / 2) for a in arrivals)
    context = held / count / output
    pairs = sum(attention_pairs(a.prompt_tokens) for a in arrivals) / count / output
    tokens = 1 + prompt / output

    def step_ns(seats: float) -> Nanos:
        return engine.duration_ns(
            tokens=seats * tokens,
            kv_tokens=seats * context,
            sequences=seats,
            attention=seats * pairs,
        )

    low, high = 0.0, float(_SEATS_MAX)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if step_ns(middle) <= tpot_ns else (low, middle)
    return {
        "kv": engine.kv_tokens / context,
        "pace": low,
        "seats": float(engine.sequences_max),
        "budget": engine.step_tokens_max / tokens,
    }
