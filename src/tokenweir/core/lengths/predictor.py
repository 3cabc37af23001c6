"""How long will an answer get, given how long it is already?

Model: L = total output tokens of an answer were it not cut, m = its declared maximum, k = tokens
generated so far; F = blend of the distributions of three buckets, most specific first: (tenant,
route, m by powers of two), (route, m by powers of two), model-wide; n = completions in a bucket.
Rule: a bucket counts from n = 50 with weight n / (n + 50) of what the more specific ones left; the
last one, or the one that leaves less than 0.01, takes the rest. ``sampled`` draws L from F given
L > k, with u = uniform(request key, draw); ``conformal`` takes the quantile at a level that moves
by 0.02 x (miss - allowed misses) with every completion; ``declared`` takes m. All are capped by m.
Beyond the largest length seen L = k + 64; what a distribution leaves unresolved ends 64 after the
largest, or at the prior if it is more than a tenth; with fewer than 50 completions at all, L is the
prior of 1024.
Properties: same key, draw and history give the same length, so that a decision does not flicker;
sums over a batch are unbiased. After T completions that were compared in a bucket, the mean miss
rate of ``conformal`` exceeds the allowed one by less than 0.12 / (0.02 T), whatever the lengths do:
by 0.01 at T = 600.
Trade-off: a draw is right for a sum of many requests and says little about one. A miss is judged
when the answer is over, by the ``Forecast`` made when it came: answers in flight when lengths
changed are misses that no level could avoid, and with d completions in between the level moves by
at most 0.35 / d, so that the bound is reached later. The blend pulls a tenant a tenth of the way
to its route.
Source: Past-Future scheduler (Gong et al., ASPLOS 2025) for draws given k; Gibbs and Candes,
Adaptive conformal inference (NeurIPS 2021) for the level.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TypeVar

from tokenweir.core.errors import ContractError
from tokenweir.core.lengths.blend import (
    BEYOND_TOKENS,
    Blend,
    Forecast,
    cold,
    place_of,
    quantile,
    sample,
    unresolved,
)
from tokenweir.core.lengths.config import LengthConfig, LengthMode
from tokenweir.core.lengths.coverage import CoverageTally, LengthCoverage
from tokenweir.core.lengths.window import LengthWindow
from tokenweir.core.units import Nanos

__all__ = ["LengthPredictor", "uniform"]

_COMPLETIONS_MIN = 50
_BLEND_COMPLETIONS = 50
# What full windows leave to the model-wide level is less, and not worth a third of the work.
_REST_MIN = 0.01
# Of the conformal level. Its standard deviation on stationary lengths is sqrt(gain x 0.09 / 2),
# 0.03 here; half of it would need twice as many completions to make good for a shift.
_LEVEL_GAIN = 0.02
# An integrator with a delay of d steps swings if gain x d is near pi / 2, and does not overshoot
# below 1 / e.
_LEVEL_GAIN_TOTAL = 0.35
# Steps of the golden ratio: the most even sequence that needs no memory.
_GOLDEN = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1
_UNIT_53 = 2.0**-53

_Key = TypeVar("_Key")


def uniform(request_key: str, draw: int) -> float:
    """Return a number in [0, 1) that depends on the key and the index of the draw alone."""
    # Keys come from clients: JSON lets lone surrogates through.
    text = f"{draw}:{request_key}".encode("utf-8", "surrogatepass")
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 11) * _UNIT_53


class LengthPredictor:
    """Output lengths of one model, learned from completions.

    Every call takes O(log n) in the window; ``observe`` rebuilds tables of O(n) now and then, which
    is O(1) per observation. Predicting changes nothing that can be seen.
    """

    def __init__(self, config: LengthConfig | None = None) -> None:
        """Start knowing nothing."""
        self.config = config or LengthConfig()
        self._model = self._window()
        self._routes: OrderedDict[tuple[str, int], LengthWindow] = OrderedDict()
        self._tenants: OrderedDict[tuple[str, str, int], LengthWindow] = OrderedDict()
        self._tally = CoverageTally()
        self._observed = 0
        # Before any time that can be passed in: monotonic clocks may start anywhere.
        self._now_ns: Nanos = -(1 << 62)

    def predict(
        self,
        request_key: str,
        *,
        tenant: str,
        route: str,
        output_tokens_max: int,
        generated: int = 0,
        draw: int = 0,
        mode: LengthMode | None = None,
    ) -> int:
        """Predict the total length of one answer.

        Keep the value until the answer has passed it, then ask again with what was generated and
        the next ``draw``.

        Args:
            request_key: Whose chance is used.
            tenant: Who asks.
            route: Over which route.
            output_tokens_max: Declared maximum in tokens, at least 1.
            generated: Output tokens so far.
            draw: 0 at arrival, counted up with every new prediction of the same request.
            mode: Another mode than the configured one, for instance where a guarantee is paid for.

        Returns:
            Tokens, above ``generated`` and up to the maximum; ``generated`` where that is at the
            maximum already.
        """
        if generated >= output_tokens_max:
            return generated
        mode = mode or self.config.mode
        if mode == "declared":
            return output_tokens_max
        blend = self._blend(tenant, route=route, output_tokens_max=output_tokens_max)
        prior = self.config.prior_tokens(route)
        if not blend:
            tokens = cold(prior, generated=generated)
        elif mode == "conformal":
            level = blend[0][1].level
            if level >= 1:
                return output_tokens_max
            tokens = quantile(level, blend, generated=generated, prior=prior)
        else:
            tokens = sample(uniform(request_key, draw), blend, generated=generated, prior=prior)
        return tokens if tokens < output_tokens_max else output_tokens_max

    def quantile(
        self, q: float, *, tenant: str, route: str, output_tokens_max: int, generated: int = 0
    ) -> int:
        """Return the least total length that is not passed with probability ``q``, in any mode.

        Raises:
            ContractError: ``q`` is not within 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ContractError(f"quantile {q} is not possible, possible: 0 to 1")
        if generated >= output_tokens_max:
            return generated
        blend = self._blend(tenant, route=route, output_tokens_max=output_tokens_max)
        prior = self.config.prior_tokens(route)
        if not blend:
            return min(cold(prior, generated=generated), output_tokens_max)
        return min(quantile(q, blend, generated=generated, prior=prior), output_tokens_max)

    def mean(self, *, tenant: str, route: str, output_tokens_max: int, generated: int = 0) -> float:
        """Return the expected total length in tokens, capped by the maximum, in any mode."""
        if generated >= output_tokens_max:
            return float(generated)
        blend = self._blend(tenant, route=route, output_tokens_max=output_tokens_max)
        prior = self.config.prior_tokens(route)
        moment = mass = 0.0
        for weight, window in blend:
            beyond = unresolved(window, generated=generated, prior=prior)
            mass += weight * window.survival(generated)
            moment += weight * window.capped_moment(
                generated=generated,
                output_tokens_max=output_tokens_max,
                unresolved_tokens=min(beyond, output_tokens_max),
            )
        if mass <= 0.0:
            tokens = generated + BEYOND_TOKENS if blend else cold(prior, generated=generated)
            return float(min(tokens, output_tokens_max))
        return min(max(moment / mass, generated + 1.0), float(output_tokens_max))

    def observe(
        self,
        *,
        tenant: str,
        route: str,
        output_tokens_max: int,
        output_tokens: int,
        is_censored: bool,
        now_ns: Nanos,
        forecast: Forecast | None = None,
    ) -> None:
        """Learn from an answer that is over.

        Args:
            tenant: Whose.
            route: Over which route.
            output_tokens_max: Its declared maximum, at least 1.
            output_tokens: Its length in tokens.
            is_censored: Whether it would have gone on: stopped at its maximum, cancelled, failed.
            now_ns: Monotonic time.
            forecast: What was promised for it when it came; without it the conformal mode is
                judged by what is known now.

        Raises:
            ContractError: Time went back; nothing was learned.
        """
        if now_ns < self._now_ns:
            raise ContractError(f"time went back from {self._now_ns} to {now_ns} ns")
        self._now_ns = now_ns
        # Stopped before it began: longer than nothing is no news.
        if is_censored and output_tokens < 1:
            return
        length = max(output_tokens, 1)
        is_early = is_censored and length < output_tokens_max
        windows = self._windows(tenant, route=route, output_tokens_max=output_tokens_max)
        self._compare(
            length,
            windows=windows,
            route=route,
            output_tokens_max=output_tokens_max,
            is_censored=is_censored,
            forecast=forecast,
        )
        for window in windows:
            window.add(length, is_censored=is_censored, is_early=is_early, now_ns=now_ns)

    def forecast(self, *, tenant: str, route: str, output_tokens_max: int) -> Forecast | None:
        """Return what the conformal mode promises for a request that comes now, in any mode.

        Returns:
            To be handed to ``observe`` at its end; None where too little is known to promise.
        """
        blend = self._blend(tenant, route=route, output_tokens_max=output_tokens_max)
        if not blend:
            return None
        window = blend[0][1]
        tokens = output_tokens_max
        if window.level < 1:
            prior = self.config.prior_tokens(route)
            tokens = min(tokens, quantile(window.level, blend, generated=0, prior=prior))
        below, upto = place_of(blend, tokens)
        if tokens == output_tokens_max:
            upto = 1.0
        return Forecast(tokens, window.level, below, upto, window, window.observed)

    def coverage(self) -> LengthCoverage:
        """Return how well predictions have held since the start."""
        return self._tally.view(
            level=self.config.level, buckets=1 + len(self._routes) + len(self._tenants)
        )

    # --- buckets ------------------------------------------------------------------------------

    def _window(self) -> LengthWindow:
        config = self.config
        return LengthWindow(
            completions_max=config.window_completions,
            age_ns=config.window_age_ns,
            level=config.level,
        )

    def _windows(
        self, tenant: str, *, route: str, output_tokens_max: int
    ) -> tuple[LengthWindow, LengthWindow, LengthWindow]:
        bucket = (output_tokens_max - 1).bit_length()
        return (
            self._kept(self._tenants, (tenant, route, bucket)),
            self._kept(self._routes, (route, bucket)),
            self._model,
        )

    def _kept(self, windows: OrderedDict[_Key, LengthWindow], key: _Key) -> LengthWindow:
        window = windows.get(key)
        if window is not None:
            windows.move_to_end(key)
            return window
        if len(windows) >= self.config.buckets_max:
            windows.popitem(last=False)
        window = windows[key] = self._window()
        return window

    def _blend(self, tenant: str, *, route: str, output_tokens_max: int) -> Blend:
        bucket = (output_tokens_max - 1).bit_length()
        return self._weighted((
            self._tenants.get((tenant, route, bucket)),
            self._routes.get((route, bucket)),
            self._model,
        ))

    def _weighted(self, windows: tuple[LengthWindow | None, ...]) -> Blend:
        """Give each level that counts its weight, none where too little is known."""
        blend: Blend = []
        rest = 1.0
        now_ns = self._now_ns
        for window in windows:
            if window is None or window.completions < _COMPLETIONS_MIN:
                continue
            window.refresh(now_ns=now_ns)
            n = window.completions
            if n < _COMPLETIONS_MIN:
                continue
            weight = rest * n / (n + _BLEND_COMPLETIONS)
            rest -= weight
            blend.append((weight, window))
            if rest < _REST_MIN:
                break
        if blend:
            weight, window = blend[-1]
            blend[-1] = (weight + rest, window)
        return blend

    # --- comparison ---------------------------------------------------------------------------

    def _compare(
        self,
        length: int,
        *,
        windows: tuple[LengthWindow, ...],
        route: str,
        output_tokens_max: int,
        is_censored: bool,
        forecast: Forecast | None,
    ) -> None:
        """Measure what was known against what came, and move the conformal levels."""
        is_declared_hit = length <= output_tokens_max
        blend = self._weighted(windows)
        if not blend:
            is_hit = length <= min(self.config.prior_tokens(route), output_tokens_max)
            self._tally.note_cold(is_hit=is_hit, is_declared_hit=is_declared_hit)
            return
        before, upto = place_of(blend, length)
        self._observed += 1
        share = ((self._observed * _GOLDEN & _MASK_64) >> 11) * _UNIT_53
        # Of a censored length only the part of the distribution above it is left.
        low, high = (upto, 1.0) if is_censored else (before, upto)
        place = low + share * (high - low)
        is_early = is_censored and length < output_tokens_max
        if forecast is None:
            level = blend[0][1].level
            # A quantile is not passed exactly where F just below the length is under its level.
            is_hit = before < level
        else:
            level = forecast.level
            is_hit = length <= forecast.tokens
        self._tally.note(
            place=place,
            is_censored=is_censored,
            is_conformal_hit=place <= level if is_early and is_hit else is_hit,
            is_declared_hit=is_declared_hit,
        )
        # By the place and not by the hit: where many answers share one length, hits cannot be as
        # rare as allowed, and a level that tried would swing to and fro.
        allowed = 1.0 - self.config.level
        for window in windows:
            gain, is_missed = _LEVEL_GAIN, place > window.level
            if forecast is not None and forecast.window is window:
                # Late news in small steps: the level has moved since, for the same reason.
                delay = window.observed - forecast.observed
                gain = min(gain, _LEVEL_GAIN_TOTAL / (delay + 1))
                if not (is_early and length <= forecast.tokens):
                    is_missed = forecast.is_missed_by(length, share=share)
                else:
                    is_missed = place > level
            window.level += gain * (is_missed - allowed)
