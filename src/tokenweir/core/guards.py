"""Would one more request break the first token or the pace of the others?

A KV pool with room says nothing of time. On most engines computing binds first: prompts that wait
inside the engine are beyond order, fairness and cancellation, and every sequence more slows all.

Model: D = prompt tokens dispatched to a replica whose first token has not come; R = prefill rate in
tokens/s, less where the engine is slower than its profile (see ``slowness``); S = one step's token
budget; T(B) = step time with B requests; q = TPOT bound.
Rule (first token): dispatch while D <= max(S, ``prefill_ns_max`` R), and of who holds more than its
fair part while others come D <= max(S, ``heavy_prefill_fraction`` of that); a large prompt may
enter an engine that reads nothing, since it can never be less alone.
Where an engine limits what a step reads of one prompt, D has no more than that of each: the others
are read beside it.
Rule (pace): dispatch while T(B + 1), and the mean pace while a long prompt is read, are at most
``pace_fraction`` q, where the engine's profile is known, and for who holds more than its fair part
while others come T(B + 2): a seat is left to them. An engine that serves nobody takes one, for the
same reason.
Trade-off: what is held back waits in our queue, where it can still be dropped, reordered or moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenweir.core.account import Account
from tokenweir.core.capacity.protocol import Shortage, check_fraction
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile, attention_pairs
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = [
    "GuardConfig",
    "first_token_room_ns",
    "first_token_shortage",
    "pace_shortage",
    "prefill_tokens_per_s",
    "reading_ns",
    "unread_left",
]


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """What the guards keep.

    Attributes:
        prefill_ns_max: Longest work on prompts inside an engine, above 0; 50 ms keeps a quiet
            tenant's first token near what it is on an idle engine.
        heavy_prefill_fraction: Share of that for a tenant that holds more than its fair part of the
            pool while others come, above 0 to 1; what is read cannot be passed.
        light_pool_ratio: How far over the pool's limit a tenant may go that holds less than its
            fair part, 1 to 1.1. What is kept free because predictions err is lent to it: its few
            requests add little to what may go wrong, and a pool that others fill stays full for
            tenths of a second.
        step_tokens: Budget of a step where no profile tells, 1 or more; what engines come with.
        tpot_ns: Bound on the pace, or None for no test of it.
        slo_fraction: Share of the bound on the first token that may be used, above 0 to 1.
        pace_fraction: Share of the bound on the pace, above 0 to 1. What is predicted is the step
            of an engine that never lacks requests; while load is lower, steps are shorter.
    """

    prefill_ns_max: Nanos = 50 * NS_PER_MS
    heavy_prefill_fraction: float = 0.7
    light_pool_ratio: float = 1.03
    step_tokens: int = 2_048
    tpot_ns: Nanos | None = 80 * NS_PER_MS
    slo_fraction: float = 0.9
    pace_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.prefill_ns_max <= 0:
            raise ConfigError(
                f"prefill_ns_max {self.prefill_ns_max} is not allowed, allowed: above 0"
            )
        if self.step_tokens < 1:
            raise ConfigError(f"step_tokens {self.step_tokens} is not allowed, allowed: 1 or more")
        if self.tpot_ns is not None and self.tpot_ns <= 0:
            raise ConfigError(f"tpot_ns {self.tpot_ns} is not allowed, allowed: above 0, or none")
        if not 1 <= self.light_pool_ratio <= 1.1:
            raise ConfigError(
                f"light_pool_ratio {self.light_pool_ratio} is not allowed, allowed: 1 to 1.1"
            )
        check_fraction("heavy_prefill_fraction", self.heavy_prefill_fraction)
        check_fraction("slo_fraction", self.slo_fraction)
        check_fraction("pace_fraction", self.pace_fraction)


def prefill_tokens_per_s(account: Account) -> float | None:
    """Return how fast a replica reads prompts beside what it decodes, None where not known."""
    profile = account.profile
    if profile is None:
        return None
    # Asked for up to nine times in a decision.
    decoding, held_tokens, ratio = account.decoding, account.held_tokens, account.slowness.ratio
    memo = account.prefill_memo
    if memo[0] == decoding and memo[1] == held_tokens and memo[2] == ratio:
        return memo[3]
    beside = min(decoding, profile.step_tokens_max - 1)
    step_ns = profile.duration_ns(
        tokens=profile.step_tokens_max, kv_tokens=held_tokens, sequences=beside + 1
    )
    rate = (profile.step_tokens_max - beside) * NS_PER_S / (step_ns * ratio)
    account.prefill_memo = (decoding, held_tokens, ratio, rate)
    return rate


def reading_ns(tokens: float, account: Account, *, pairs: float) -> Nanos | None:
    """Return how long until prompts have been read, None where the speed is not known.

    A step more than their share: whoever enters waits for the running step to end.

    Args:
        tokens: Of all the prompts together.
        account: Of the replica that reads them.
        pairs: Of their tokens and contexts, which long prompts are made of.
    """
    rate = prefill_tokens_per_s(account)
    if rate is None or account.profile is None:
        return None
    step_ns = account.profile.duration_ns(
        tokens=account.profile.step_tokens_max,
        kv_tokens=account.held_tokens,
        sequences=account.in_flight,
    )
    beside_ns = step_ns * account.slowness.ratio + pairs * _pair_ns(account)
    return int(tokens / rate * NS_PER_S + beside_ns)


def first_token_shortage(
    account: Account,
    config: GuardConfig,
    *,
    now_ns: Nanos,
    ceiling_fraction: float = 1.0,
    is_heavy: bool = False,
) -> Shortage | None:
    """Return None while the replica has little enough to read, or a share of that."""
    limit = _unread_limit(account, config, ceiling_fraction=ceiling_fraction, is_heavy=is_heavy)
    if account.prefill_tokens <= limit:
        return None
    unread = math.ceil(unread_left(account, now_ns=now_ns)[0])
    if unread <= limit:
        return None
    return Shortage(ReasonCode.OVERLOAD_PREFILL, unread - limit, unread, limit)


def first_token_room_ns(
    account: Account,
    config: GuardConfig,
    *,
    ceiling_fraction: float = 1.0,
    is_heavy: bool = False,
) -> Nanos | None:
    """Return when the replica will have little enough to read, None where no clock tells."""
    rate = prefill_tokens_per_s(account)
    # Read side by side, prompts leave room when one of them is through, which is told.
    if rate is None or _chunk_tokens(account) is not None:
        return None
    limit = _unread_limit(account, config, ceiling_fraction=ceiling_fraction, is_heavy=is_heavy)
    return account.reading.due_ns(limit, tokens_per_s=rate, pair_ns=_pair_ns(account))


def unread_left(account: Account, *, now_ns: Nanos) -> tuple[float, float]:
    """Return tokens and pairs of token and context that a replica has still to read."""
    return account.reading.left(
        tokens_per_s=prefill_tokens_per_s(account),
        pair_ns=_pair_ns(account),
        now_ns=now_ns,
        chunk_tokens=_chunk_tokens(account),
    )


def _chunk_tokens(account: Account) -> int | None:
    """Return what a step reads of one prompt at most, None where that may be all of the step."""
    profile = account.profile
    if profile is None or profile.chunk_tokens_max >= profile.step_tokens_max:
        return None
    return profile.chunk_tokens_max


def _pair_ns(account: Account) -> float:
    profile = account.profile
    return 0.0 if profile is None else profile.attention_ns * account.slowness.ratio


def _unread_limit(
    account: Account, config: GuardConfig, *, ceiling_fraction: float, is_heavy: bool
) -> int:
    profile = account.profile
    limit = config.step_tokens if profile is None else profile.step_tokens_max
    rate = prefill_tokens_per_s(account)
    if rate is not None:
        fraction = config.heavy_prefill_fraction if is_heavy else 1.0
        limit = max(limit, int(rate * config.prefill_ns_max * fraction / NS_PER_S))
    return int(limit * ceiling_fraction)


def _pace_ns(
    estimate: Estimate,
    account: Account,
    *,
    profile: EngineProfile,
    sequences: int,
    limit_ns: Nanos,
) -> float:
    """Return the pace of those that run with one more, over what the mean one has yet to produce.

    Each request that ends makes room for a prompt, so that a step reads as many prompt tokens per
    token it decodes as requests bring, less what a prefix cache has of them; more than its budget
    it cannot.

    Steps are longer while a long prompt is read. Whoever has more left than the prompt has steps
    makes good for it afterwards; whoever ends earlier bears its part.
    """
    held = account.held_prompt_tokens
    prompts = held - account.cached_prompt_tokens + estimate.unread_tokens
    outputs = account.reserved_tokens - held + estimate.output_tokens
    step_tokens = sequences * (1 + prompts / max(1, outputs))
    step_ns = profile.duration_ns(
        tokens=min(step_tokens, profile.step_tokens_max),
        kv_tokens=account.held_tokens + estimate.prompt_tokens,
        sequences=sequences,
    )
    pairs = attention_pairs(estimate.prompt_tokens, cached_tokens=estimate.cached_tokens)
    attention_ns = pairs * profile.attention_ns
    chunk = min(profile.chunk_tokens_max, profile.step_tokens_max)
    reading_steps = max(1, -(-estimate.unread_tokens // chunk))
    if account.decoding == 0 or step_ns + attention_ns / reading_steps <= limit_ns:
        return step_ns
    return step_ns + attention_ns / max(_mean_left_tokens(account), reading_steps)


def _mean_left_tokens(account: Account) -> float:
    """Return what those that run have yet to produce in the mean, at least 1.

    An answer longer than was predicted for it is not at its end: where it is known what is
    predicted of it now, that counts, and not what it has left of its reservation.
    """
    batch = account.batch
    if batch is not None:
        left = batch.remaining_tokens
    else:
        left = account.reserved_tokens - account.held_tokens
    return max(1.0, left / account.in_flight)


def pace_shortage(
    estimate: Estimate,
    account: Account,
    *,
    config: GuardConfig,
    ceiling_fraction: float = 1.0,
    is_heavy: bool = False,
) -> Shortage | None:
    """Return None while one more request keeps the pace, with a share of the seats and time.

    Args:
        estimate: Of the request.
        account: Of the replica.
        config: Bounds.
        ceiling_fraction: Share of them.
        is_heavy: Whether one more after it has to keep the pace too, which others may send.
    """
    profile = account.profile
    if profile is None or config.tpot_ns is None or account.in_flight == 0:
        return None
    sequences = account.in_flight + (2 if is_heavy else 1)
    limit_ns = int(config.tpot_ns * config.pace_fraction * ceiling_fraction)
    step_ns = _pace_ns(estimate, account, profile=profile, sequences=sequences, limit_ns=limit_ns)
    if sequences <= profile.sequences_max * ceiling_fraction and step_ns <= limit_ns:
        return None
    # What one request holds in the mean has to leave first.
    mean_tokens = account.reserved_tokens // account.in_flight
    in_flight = account.in_flight
    return Shortage(ReasonCode.OVERLOAD_PACE, max(1, mean_tokens), in_flight, in_flight)
