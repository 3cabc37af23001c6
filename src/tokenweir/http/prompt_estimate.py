"""How many tokens is a prompt that nobody has tokenised?

Model: b = UTF-8 bytes of all text of the prompt; r = bytes per token of the model; m = messages.
Rule: tokens = ceil(b / r) + 4 m + flat costs of parts that are not text, at least ``FLOOR_TOKENS``.
r starts at 4 and follows what comes back as usage: r += gain (b / prompt tokens - r), clamped.
Prompts given as token ids are counted, not estimated.
Trade-off: a tokenizer would be exact, at 0.3 ms per thousand tokens and a vocabulary per model.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tokenweir.core.units import div_ceil

__all__ = ["FLOOR_TOKENS", "MEDIA_TOKENS", "PromptSize", "TokenRatios"]

# No request is free: a template and the engine's own work cost about this much.
FLOOR_TOKENS = 8
# An image, a sound or a file. Engines differ between 85 and 2,000; none tells before it has looked.
MEDIA_TOKENS = 1_024
_MESSAGE_TOKENS = 4

_BYTES_PER_TOKEN_START = 4.0
_BYTES_PER_TOKEN_MIN = 0.5
_BYTES_PER_TOKEN_MAX = 16.0
_CHUNK_TOKENS_MAX = 64.0
_GAIN = 0.05
# Shorter texts say more about the template than about the ratio.
_LEARN_BYTES_MIN = 64


@dataclass(frozen=True, slots=True)
class PromptSize:
    """What can be seen of a prompt's size without a tokenizer.

    Attributes:
        text_bytes: UTF-8 bytes of all text.
        messages: Messages or prompts, each of which has a template around it.
        exact_tokens: Tokens given as ids.
        media: Parts that are not text.
    """

    text_bytes: int
    messages: int = 0
    exact_tokens: int = 0
    media: int = 0


class _Ratio:
    __slots__ = ("bytes_per_token", "tokens_per_chunk")

    def __init__(self) -> None:
        self.bytes_per_token = _BYTES_PER_TOKEN_START
        self.tokens_per_chunk = 1.0


class TokenRatios:
    """Learned ratios per model: bytes per prompt token, and output tokens per streamed chunk."""

    def __init__(self, *, models_max: int = 256) -> None:
        """Start knowing nothing; the model unused for longest makes room for a new one."""
        self._models_max = models_max
        self._ratios: OrderedDict[str, _Ratio] = OrderedDict()

    def prompt_tokens(self, model: str, size: PromptSize) -> int:
        """Estimate a prompt, in tokens, at least ``FLOOR_TOKENS``."""
        tokens = size.exact_tokens + size.media * MEDIA_TOKENS
        if size.text_bytes:
            # In thousandths, so that the rounding up is one of ints.
            ratio_thousandths = int(self._ratio(model).bytes_per_token * 1_000)
            tokens += div_ceil(size.text_bytes * 1_000, ratio_thousandths)
            tokens += size.messages * _MESSAGE_TOKENS
        return max(tokens, FLOOR_TOKENS)

    def tokens_per_chunk(self, model: str) -> float:
        """Return how many output tokens a chunk of a stream has, as far as is known."""
        return self._ratio(model).tokens_per_chunk

    def learn_prompt(self, model: str, size: PromptSize, *, prompt_tokens: int) -> None:
        """Take in how many tokens a prompt really had; only texts of some length teach."""
        tokens = prompt_tokens - size.messages * _MESSAGE_TOKENS
        if size.media or size.exact_tokens or size.text_bytes < _LEARN_BYTES_MIN or tokens <= 0:
            return
        ratio = self._ratio(model)
        seen = min(max(size.text_bytes / tokens, _BYTES_PER_TOKEN_MIN), _BYTES_PER_TOKEN_MAX)
        ratio.bytes_per_token += _GAIN * (seen - ratio.bytes_per_token)

    def learn_chunks(self, model: str, chunks: int, *, output_tokens: int) -> None:
        """Take in how many tokens a stream of so many chunks really had."""
        if chunks > 0 and output_tokens > 0:
            ratio = self._ratio(model)
            seen = min(output_tokens / chunks, _CHUNK_TOKENS_MAX)
            ratio.tokens_per_chunk += _GAIN * (seen - ratio.tokens_per_chunk)

    def __len__(self) -> int:
        """Count the models known."""
        return len(self._ratios)

    def _ratio(self, model: str) -> _Ratio:
        ratio = self._ratios.get(model)
        if ratio is None:
            ratio = self._ratios[model] = _Ratio()
            if len(self._ratios) > self._models_max:
                self._ratios.popitem(last=False)
        else:
            self._ratios.move_to_end(model)
        return ratio
