"""What will a request cost?

Model: cost = prompt tokens p + expected output tokens o, both ints.
Rule: ``declared`` takes o = the declared maximum m; ``amortised`` takes o = min(m, cap), because
few outputs reach a loose maximum and the sum over many requests concentrates.
Trade-off: ``declared`` can never be exceeded but wastes what loose maxima promise in vain;
``amortised`` can be exceeded, and then the pool's headroom has to absorb it. ``predicted`` draws o
from what this tenant and route really produced; single draws are wrong, their sum is not.
Source: the article's two reservation policies; its amortised cap is 320.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import Forecast, LengthPredictor
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.units import Nanos

__all__ = ["COSTS", "CostModel", "Estimate", "Predicted", "amortised", "cost_model", "declared"]

AMORTISED_OUTPUT_TOKENS_CAP = 320


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted use of one request, in tokens.

    ``cached_tokens`` of the prompt need not be read, but are held like the rest.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and output tokens together: what a reservation holds."""
        return self.prompt_tokens + self.output_tokens

    @property
    def unread_tokens(self) -> int:
        """Prompt tokens that the engine has to read."""
        return self.prompt_tokens - self.cached_tokens


CostModel = Callable[[Request], Estimate]


def declared(request: Request) -> Estimate:
    """Reserve the prompt and the whole declared maximum."""
    return Estimate(request.prompt_tokens, request.output_tokens_max, request.cached_prompt_tokens)


def amortised(request: Request) -> Estimate:
    """Reserve the prompt and at most ``AMORTISED_OUTPUT_TOKENS_CAP`` per answer."""
    output = request.output_tokens_max
    cap = AMORTISED_OUTPUT_TOKENS_CAP * request.sequences
    if output > cap:
        output = cap
    return Estimate(request.prompt_tokens, output, request.cached_prompt_tokens)


class Predicted:
    """Reserve the prompt and what the predictor draws for this request; learns from every end."""

    def __init__(self, lengths: LengthPredictor | None = None) -> None:
        """Start with a predictor that knows nothing, or with one that does."""
        self.lengths = lengths or LengthPredictor()

    def __call__(self, request: Request) -> Estimate:
        """Draw the output length of a request that has not begun."""
        output = self.output_tokens(request)
        return Estimate(request.prompt_tokens, output, request.cached_prompt_tokens)

    def output_tokens(self, request: Request, *, generated: int = 0, draw: int = 0) -> int:
        """Draw a request's output, given that it is longer than what it has produced.

        Args:
            request: Whose.
            generated: Output tokens so far, of all its sequences.
            draw: Number of earlier draws for it.
        """
        sequences = request.sequences
        drawn = self.lengths.predict(
            request.request_id,
            tenant=request.tenant,
            route=request.route,
            output_tokens_max=max(1, request.output_tokens_max // sequences),
            generated=generated // sequences,
            draw=draw,
            mode=request.length_mode,
        )
        # The maximum may be smaller than one token for each of them.
        return min(drawn * sequences, request.output_tokens_max)

    def mean_output_tokens(self, request: Request) -> float:
        """Return the mean output of requests like this one: steadier than a draw."""
        sequences = request.sequences
        mean = self.lengths.mean(
            tenant=request.tenant,
            route=request.route,
            output_tokens_max=max(1, request.output_tokens_max // sequences),
        )
        return mean * sequences

    def forecast(self, request: Request) -> Forecast | None:
        """Return what the conformal mode promises for it now; see ``LengthPredictor``."""
        return self.lengths.forecast(
            tenant=request.tenant,
            route=request.route,
            output_tokens_max=max(1, request.output_tokens_max // request.sequences),
        )

    def learn(
        self,
        request: Request,
        usage: Usage,
        *,
        outcome: Outcome,
        now_ns: Nanos,
        forecast: Forecast | None = None,
    ) -> None:
        """Take in how long an answer got; every end but the model's own is censored.

        Args:
            request: Whose.
            usage: What it used.
            outcome: How it ended.
            now_ns: Monotonic time.
            forecast: What was promised for it when it was let in.
        """
        if usage.output_tokens < 1:
            return
        self.lengths.observe(
            tenant=request.tenant,
            route=request.route,
            output_tokens_max=max(1, request.output_tokens_max // request.sequences),
            output_tokens=max(1, usage.output_tokens // request.sequences),
            is_censored=outcome is not Outcome.FINISHED,
            now_ns=now_ns,
            forecast=forecast,
        )


# Factories: a cost that learns belongs to one admitter.
COSTS: dict[str, Callable[[], CostModel]] = {
    "declared": lambda: declared,
    "amortised": lambda: amortised,
    "predicted": Predicted,
}


def cost_model(name: str) -> CostModel:
    """Build the named cost model.

    Raises:
        ConfigError: No such row in ``COSTS``.
    """
    try:
        return COSTS[name]()
    except KeyError:
        raise ConfigError(f"unknown cost {name!r}, allowed: {', '.join(COSTS)}") from None
