"""What is the least that a good request takes from an engine, whoever schedules it?

Model: request i has p prompt and o output tokens, q and S are its SLO. A step works on n <= B
tokens of m <= R requests, at most c = min(chunk, B) prefill tokens of one; the pool holds K tokens.
A step takes max(s1 + n t1, s2 + n t2) + k b + m w + a v ns (``EngineProfile``; k context of what
decodes, a pairs of prefill and context token), rounded down.
Rule, each activity in its unit, window and least amount:

* prefill, tokens, [r, r + S]: p;
* decode, tokens, [r, D], D = r + S + q (o - 1): o - 1, since the step that ends the prefill gives
  the first token;
* kv, token-ns, [r, D]: what it holds in a step times the shortest step with it alone; in decode
  step j that is p + j tokens, in prefill what has been worked out, least when the smallest chunk
  comes first;
* prefill_extra, ns, [r, r + S]: w for each of at least p/c steps, and v p^2 / 2 however chunked;
* decode_extra, ns, [r, D]: w for each step, and b (p + j) but in the last, which frees its KV.

Resources, per ns. Fixed steps: B/s tokens and, where R < B, R/s places, of which a prefill token
takes 1/c at least. Other engines: time, 1 per ns. A step with arm (s, t) takes at least
s n/B + n t and at least s m/R + n t with m >= (tokens that decode) + (prefill tokens)/c; both are
sums over its requests, so each is a row of its own, and rows that another covers are left out.
With a prefix cache p is the whole prompt only in what decode reads and in what has to fit. What is
read, and the KV that counts, is u = what ``least_unread_tokens`` says: a block is charged to the
first request that has it, and whoever reads or holds it does so for that one too. Several requests
may read parts of one prompt in a step, so the steps that u takes are u/c for the places, at least
u/B and one for the time, and KV of prefill counts in the last of them only.
Several engines are one with as many times each resource, since no request needs two.
Properties: all of it holds step by step, so for any set of steps. Preemption, recompute, idling
and requests that miss their SLO only take more.
Level L ends windows at D. Level E is for fixed steps: an engine that decodes first and never pauses
gives o - 1 tokens in as many steps after a first token by r + S, so D becomes r + S + (o - 1) s.
Trade-off: steps are taken as divisible, and a request's own order and pace of steps are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.study.bound.requests import Floats, Ints, Requests

__all__ = ["Activity", "Resource", "Work", "least_work"]


@dataclass(frozen=True, slots=True)
class Activity:
    """One kind of work that a good request needs; arrays of shape (n,).

    Attributes:
        amount: Of each request, in the activity's own unit, 0 or more.
        release_ns: Not done before.
        deadline_ns: Done by then.
    """

    amount: Floats = field(repr=False)
    release_ns: Ints = field(repr=False)
    deadline_ns: Ints = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resource:
    """What activities compete for.

    Attributes:
        rate: Available per ns, above 0.
        charges: What a unit of an activity takes of it, above 0, by name of the activity.
    """

    rate: float
    charges: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What requests need of an engine.

    Attributes:
        activities: By name.
        resources: By name.
        can_be_good: Which requests could be good on an engine of their own, shape (n,).
    """

    activities: Mapping[str, Activity]
    resources: Mapping[str, Resource]
    can_be_good: NDArray[np.bool_] = field(repr=False)


def least_work(
    requests: Requests, profile: EngineProfile, *, pauses: bool, replicas: int = 1
) -> Work:
    """Return the least that good requests take, and from what.

    Args:
        requests: Unique requests.
        profile: The engine.
        replicas: How many there are of it.
        pauses: Whether a scheduler may let a request that has begun to decode wait (level L).

    Raises:
        ConfigError: Pauses are excluded on an engine whose steps have no fixed length.
    """
    if not pauses and not profile.is_paced:
        raise ConfigError(
            f"level E needs steps of a fixed length, and those of profile {profile.name} vary, "
            "allowed: L, knapsack"
        )
    least = _Least.of(requests, profile)
    release_ns = requests.arrival_ns
    last_ns = requests.last_token_by_ns
    if not pauses:
        unpaused_ns = (requests.output_tokens - 1) * profile.step_ns
        last_ns = np.minimum(last_ns, requests.first_token_by_ns + unpaused_ns)
    first_ns = requests.first_token_by_ns
    activities = {
        "prefill": Activity(_unread(requests), release_ns, first_ns),
        "decode": Activity((requests.output_tokens - 1).astype(np.float64), release_ns, last_ns),
        "kv": Activity(least.kv_token_ns, release_ns, last_ns),
        "prefill_extra": Activity(least.prefill_extra_ns, release_ns, first_ns),
        "decode_extra": Activity(least.decode_extra_ns, release_ns, last_ns),
    }
    resources = {
        name: replace(resource, rate=resource.rate * replicas)
        for name, resource in _resources(profile).items()
    }
    return Work(activities, resources, _can_be_good(requests, profile, least=least))


def _unread(requests: Requests) -> Floats:
    unread = requests.unread_tokens
    return (requests.prompt_tokens if unread is None else unread).astype(np.float64)


def _resources(profile: EngineProfile) -> dict[str, Resource]:
    tokens_max, places_max = profile.step_tokens_max, profile.sequences_max
    per_token = 1 / _chunk(profile)
    resources = {"kv": Resource(float(profile.kv_tokens), {"kv": 1.0})}
    if profile.is_paced:
        step_ns = profile.step_ns
        resources["tokens"] = Resource(tokens_max / step_ns, {"prefill": 1.0, "decode": 1.0})
        if places_max < tokens_max:
            charges = {"prefill": per_token, "decode": 1.0}
            resources["places"] = Resource(places_max / step_ns, charges)
        return resources
    rows: dict[str, tuple[float, float]] = {}
    for name, base_ns, token_ns in _arms(profile):
        each_ns = base_ns / tokens_max + token_ns
        rows[f"time_{name}"] = (each_ns, each_ns)
        place_ns = base_ns / places_max
        rows[f"time_{name}_places"] = (place_ns * per_token + token_ns, place_ns + token_ns)
    for name, row in rows.items():
        if not any(_covers(other, row) for other in rows.values()):
            extra = {"prefill_extra": 1.0, "decode_extra": 1.0}
            resources[name] = Resource(1.0, {"prefill": row[0], "decode": row[1], **extra})
    return resources


def _covers(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Tell whether one row's charges are at least another's, and not the same."""
    return one != other and one[0] >= other[0] and one[1] >= other[1]


def _arms(profile: EngineProfile) -> list[tuple[str, float, float]]:
    """Return (name, ns of an empty step, ns per token) of each arm of the step time.

    A length is rounded down to a ns, which is taken off here.
    """
    return [
        ("reading", profile.step_ns - 1.0, profile.token_ns),
        ("computing", max(0.0, profile.compute_step_ns - 1.0), profile.compute_token_ns),
    ]


def _can_be_good(requests: Requests, profile: EngineProfile, *, least: _Least) -> NDArray[np.bool_]:
    """Tell which requests meet their SLO when they are alone."""
    gaps = requests.output_tokens - 1
    is_good = requests.prompt_tokens + gaps <= profile.kv_tokens
    is_good &= least.prefill_ns <= requests.ttft_ns
    is_good &= least.decode_ns <= requests.tpot_ns * gaps
    if requests.ends_ns is not None:
        done_ns = requests.arrival_ns + least.prefill_ns + least.decode_ns
        is_good &= done_ns <= requests.ends_ns
    return is_good


@dataclass(frozen=True, slots=True)
class _Least:
    """Sums over the steps of a request that has the engine for itself; shape (n,)."""

    prefill_ns: Floats
    decode_ns: Floats
    kv_token_ns: Floats
    prefill_extra_ns: Floats
    decode_extra_ns: Floats

    @classmethod
    def of(cls, requests: Requests, profile: EngineProfile) -> _Least:
        """Add up prefill and decode steps."""
        prompt, unread = requests.prompt_tokens.astype(np.float64), _unread(requests)
        steps = (requests.output_tokens - 1).astype(np.float64)
        if requests.unread_tokens is None:
            alone = chunks = np.ceil(prompt / _chunk(profile))
            # Prefill steps hold p, p - c, p - 2c, ... counted from the last.
            held = chunks * prompt - _chunk(profile) * _triangle(chunks - 1)
        else:
            alone, chunks = np.ceil(unread / profile.step_tokens_max), unread / _chunk(profile)
            held = unread
        # Decode steps hold p + 1, p + 2, ...
        decoded = steps * prompt + _triangle(steps)
        freed = np.where(steps > 0, prompt + steps, 0.0)
        read_ns = profile.kv_token_ns
        pairs = (prompt**2 - (prompt - unread) ** 2) / 2
        prefill_extra_ns = chunks * profile.sequence_ns + pairs * profile.attention_ns
        decode_extra_ns = steps * profile.sequence_ns + read_ns * (decoded - freed)
        arms = [("paced", float(profile.step_ns), 0.0)] if profile.is_paced else _arms(profile)
        shortest_ns = max(base_ns + token_ns for _, base_ns, token_ns in arms)
        prefill_ns = np.max([alone * base_ns + unread * ns for _, base_ns, ns in arms], axis=0)
        kept, gone = unread, np.where(steps > 0, unread + steps, 0.0)
        return cls(
            prefill_ns=prefill_ns + prefill_extra_ns,
            decode_ns=steps * shortest_ns + decode_extra_ns,
            kv_token_ns=(shortest_ns + profile.sequence_ns)
            * (held + steps * kept + _triangle(steps))
            + read_ns * (_squares(kept, count=steps) - gone**2),
            prefill_extra_ns=prefill_extra_ns,
            decode_extra_ns=decode_extra_ns,
        )


def _chunk(profile: EngineProfile) -> int:
    return min(profile.chunk_tokens_max, profile.step_tokens_max)


def _triangle(count: Floats) -> Floats:
    return count * (count + 1) / 2


def _squares(start: Floats, *, count: Floats) -> Floats:
    """Return the sum of (start + j)^2 for j = 1 to count."""
    of_squares = count * (count + 1) * (2 * count + 1) / 6
    return count * start**2 + 2 * start * _triangle(count) + of_squares
