"""What does a reader have to know that its files do not say?"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError

__all__ = ["Wanted"]

# Of the models whose tables are around; from their published configurations.
_LAYERS = {
    "Llama-3.1-8B": 32,
    "Llama-3-8B": 32,
    "Llama-2-7b": 32,
    "Llama-2-70b": 80,
    "Qwen3-32B": 64,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user said.

    Attributes:
        step_tokens_max: Token budget of the engine's steps.
        sequences_max: Its seats.
        kv_tokens: Its pool.
        layers: Of the model, where file names do not tell.
        where: Columns and values that select the rows of one engine.
        is_median: Whether a pace under load is a median gap, which the steps that carry a prefill
            do not move, and not the mean.
    """

    step_tokens_max: int
    sequences_max: int
    kv_tokens: int
    layers: int | None = None
    where: tuple[tuple[str, str], ...] = ()
    is_median: bool = False

    def layers_of(self, file_name: str) -> int:
        """Return the number of layers of the model that a file is about.

        Raises:
            ConfigError: Neither the user nor the name tells.
        """
        if self.layers is not None:
            return self.layers
        for model, layers in _LAYERS.items():
            if model in file_name:
                return layers
        raise ConfigError(
            f"{file_name} names no known model, allowed: --layers N, or one of {', '.join(_LAYERS)}"
        )
