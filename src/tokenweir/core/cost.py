"""What will a request cost?

Model: cost = prompt tokens p + expected output tokens o, both ints.
Rule: ``declared`` takes o = the declared maximum m; ``amortised`` takes o = min(m, cap), because
few outputs reach a loose maximum and the sum over many requests concentrates.
Trade-off: ``declared`` can never be exceeded but wastes what loose maxima promise in vain;
``amortised`` can be exceeded, and then the pool's headroom has to absorb it.
Source: the article's two reservation policies; its amortised cap is 320.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Request

__all__ = ["COSTS", "CostModel", "Estimate", "amortised", "cost_model", "declared"]

AMORTISED_OUTPUT_TOKENS_CAP = 320


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted use of one request, in tokens."""

    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Prompt and output tokens together: what a reservation holds."""
        return self.prompt_tokens + self.output_tokens


CostModel = Callable[[Request], Estimate]


def declared(request: Request) -> Estimate:
    """Reserve the prompt and the whole declared maximum."""
    return Estimate(request.prompt_tokens, request.output_tokens_max)


def amortised(request: Request) -> Estimate:
    """Reserve the prompt and at most ``AMORTISED_OUTPUT_TOKENS_CAP`` per answer."""
    output = request.output_tokens_max
    cap = AMORTISED_OUTPUT_TOKENS_CAP * request.sequences
    if output > cap:
        output = cap
    return Estimate(request.prompt_tokens, output)


COSTS: dict[str, CostModel] = {"declared": declared, "amortised": amortised}


def cost_model(name: str) -> CostModel:
    """Return the named cost model.

    Raises:
        ConfigError: No such row in ``COSTS``.
    """
    try:
        return COSTS[name]
    except KeyError:
        raise ConfigError(f"unknown cost {name!r}, allowed: {', '.join(COSTS)}") from None
