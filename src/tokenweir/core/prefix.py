"""Which prompts begin alike?

Model: a prompt is cut into blocks of ``block_tokens``; the id of a block stands for its tokens and
for all that comes before them, so that equal leading ids are a shared beginning. Only whole blocks
have ids that count: the rest of a prompt is shared with nobody.
Properties: at least one token of every prompt is read, since its first output comes from there.
Source: the block hashes of prefix caches, as in Mooncake's published traces.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NO_PREFIX", "Prefix"]


class Prefix(NamedTuple):
    """The leading blocks of one prompt.

    Attributes:
        block_tokens: Of each block, 0 where nothing is known of the prompt.
        ids: In order, each for all before it too.
    """

    block_tokens: int
    ids: tuple[int, ...]

    def whole(self, prompt_tokens: int) -> tuple[int, ...]:
        """Return the ids of the blocks that such a prompt fills."""
        return self.ids[: prompt_tokens // self.block_tokens] if self.block_tokens else ()

    def spared_max(self, prompt_tokens: int) -> int:
        """Return how many leading blocks need not be read where a cache holds them all."""
        if not self.block_tokens:
            return 0
        return min(len(self.ids), (prompt_tokens - 1) // self.block_tokens)


NO_PREFIX = Prefix(0, ())
