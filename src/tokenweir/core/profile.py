"""How fast is an engine, and how much does it hold?

Model: a step works on n <= ``step_tokens_max`` tokens, one per decoding request, the rest prefill,
at most ``chunk_tokens_max`` per request; k = KV tokens in use.
Rule: a step takes T = ``step_ns`` + n ``token_ns`` + k ``kv_token_ns``.
Source: the article's engine is one row; its step takes 10 ms whatever is in it, so its decode pace
never slows down. Real engines slow down with batch and context.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["PROFILES", "EngineProfile", "profile"]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine on one machine.

    Attributes:
        name: As on the command line.
        source: Where the numbers come from.
        step_ns: Length of an empty step, above 0.
        step_tokens_max: Tokens a step can work on, prefill and decode together.
        chunk_tokens_max: Prefill tokens of one request in one step.
        kv_tokens: Size of the KV pool.
        sequences_max: Running requests, at most ``step_tokens_max``.
        token_ns: What each token of a step adds.
        kv_token_ns: What each KV token in use adds.
    """

    name: str
    source: str
    step_ns: Nanos
    step_tokens_max: int
    chunk_tokens_max: int
    kv_tokens: int
    sequences_max: int
    token_ns: float = 0.0
    kv_token_ns: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges and relations."""
        for field in ("step_ns", "step_tokens_max", "chunk_tokens_max", "kv_tokens"):
            if getattr(self, field) < 1:
                raise ConfigError(
                    f"{field} {getattr(self, field)} is not allowed, allowed: 1 or more"
                )
        if not 1 <= self.sequences_max <= self.step_tokens_max:
            raise ConfigError(
                f"sequences_max {self.sequences_max} is not allowed, allowed: 1 up to "
                f"step_tokens_max {self.step_tokens_max}, since each decodes a token a step"
            )

    @property
    def is_paced(self) -> bool:
        """Whether every step takes the same time, so that steps lie on a fixed grid."""
        return self.token_ns == 0 and self.kv_token_ns == 0

    def duration_ns(self, *, tokens: int, kv_tokens: int) -> Nanos:
        """Return how long a step takes that works on ``tokens`` with ``kv_tokens`` in use."""
        if self.is_paced:
            return self.step_ns
        return self.step_ns + int(tokens * self.token_ns + kv_tokens * self.kv_token_ns)

    @property
    def tokens_per_s(self) -> float:
        """Most tokens it can work on in a second, with a full pool."""
        duration_ns = self.duration_ns(tokens=self.step_tokens_max, kv_tokens=self.kv_tokens)
        return self.step_tokens_max * NS_PER_S / duration_ns

    def capacity_rps(self, mean_tokens: float) -> float:
        """Return requests per second at a full batch, for requests of this mean size in tokens."""
        return self.tokens_per_s / mean_tokens


PROFILES: dict[str, EngineProfile] = {
    "article": EngineProfile(
        name="article",
        source="the article's simulation: 400 tokens in 10 ms, 90,000 KV tokens",
        step_ns=10 * NS_PER_MS,
        step_tokens_max=400,
        chunk_tokens_max=512,
        kv_tokens=90_000,
        sequences_max=400,
    ),
    "demo": EngineProfile(
        name="demo",
        source="the article's engine for lengths of a quarter, slow enough for two cores to feed: "
        "a quarter of the tokens in a step four times as long, 1/16 of the pool",
        step_ns=40 * NS_PER_MS,
        step_tokens_max=100,
        chunk_tokens_max=128,
        kv_tokens=5_600,
        sequences_max=100,
    ),
}


def profile(name: str) -> EngineProfile:
    """Return a profile by name.

    Raises:
        ConfigError: No such row in ``PROFILES``.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise ConfigError(f"unknown profile {name!r}, allowed: {', '.join(PROFILES)}") from None
