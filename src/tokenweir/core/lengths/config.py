"""What may be set about output-length prediction?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["LengthConfig", "LengthMode"]

LengthMode: TypeAlias = Literal["sampled", "conformal", "declared"]


@dataclass(frozen=True, slots=True)
class LengthConfig:
    """How lengths are remembered and predicted.

    Attributes:
        mode: What ``predict`` returns: ``sampled`` pools the risk over a batch, ``conformal`` is a
            quantile per request for batches too small to pool, ``declared`` is the maximum.
        level: Share of requests a conformal prediction is to cover, above 0 and below 1.
        window_completions: Completions remembered per bucket, at least 50; enough for a stable
            distribution, few enough to follow a drift.
        window_age_ns: Nothing older is remembered, above 0.
        cold_start_tokens: Predicted while too little is known, at least 1; as LightLLM caps.
        cold_start_tokens_by_route: The same for single routes, where an operator knows better.
        buckets_max: Buckets kept, for tenants and for routes each, at least 1; the one observed
            longest ago goes. A full bucket takes about 70 kB.
    """

    mode: LengthMode = "sampled"
    level: float = 0.9
    window_completions: int = 500
    window_age_ns: Nanos = 3_600 * NS_PER_S
    cold_start_tokens: int = 1_024
    cold_start_tokens_by_route: Mapping[str, int] = field(default_factory=dict)
    buckets_max: int = 512

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.mode not in get_args(LengthMode):
            raise ConfigError(
                f"mode {self.mode!r} is not allowed, allowed: {', '.join(get_args(LengthMode))}"
            )
        if not 0 < self.level < 1:
            raise ConfigError(f"level {self.level} is not allowed, allowed: above 0 and below 1")
        for name, least in (
            ("window_completions", 50),
            ("window_age_ns", 1),
            ("cold_start_tokens", 1),
            ("buckets_max", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name} {getattr(self, name)} is not allowed, allowed: {least} or more"
                )
        for route, tokens in self.cold_start_tokens_by_route.items():
            if tokens < 1:
                raise ConfigError(
                    f"cold_start_tokens_by_route {route!r}: {tokens} is not allowed, "
                    "allowed: 1 or more"
                )

    def prior_tokens(self, route: str) -> int:
        """Return what is predicted for a route while too little is known."""
        return self.cold_start_tokens_by_route.get(route, self.cold_start_tokens)
