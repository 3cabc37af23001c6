"""How much of a prompt does an engine have in its prefix cache already?

Model: engines do not tell what they cache. What was sent to a replica it has read, so the blocks of
its last prompts are remembered here, up to as many tokens as its KV pool has; f = leading tokens of
a prompt that are remembered for a replica.
Rule: before a replica is chosen, a prompt's discount is q times the mean of f over the replicas
that may take it. q is the precision: of the tokens that were found here, the share that engines
had too, over about the last ``_REQUESTS`` requests that found any. Until ``_PRIOR_TOKENS`` are
known of, it is mostly ``_PRIOR_FRACTION``.
Properties: a discount is never more than all but one token; an index that is wrong by a steady
share corrects itself, and one that is always wrong gives no discount.
Trade-off: engines evict earlier than this, since answers need their pool too, and find a little
that is not remembered here; the first is what q measures, the second is a discount not given.
Source: requirement to charge only what has to be read; approximate prefix indexes of gateways that
route by cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from tokenweir.core.errors import ConfigError
from tokenweir.core.prefix import Prefix
from tokenweir.core.units import ReplicaId

__all__ = ["PrefixIndex"]

_PRIOR_FRACTION = 0.5
_PRIOR_TOKENS = 16_384
_REQUESTS = 1_000


class PrefixIndex:
    """What the replicas of one pool have read lately."""

    def __init__(self, *, tokens_max: int) -> None:
        """Start knowing nothing.

        Args:
            tokens_max: Remembered for each replica: the size of its KV pool.

        Raises:
            ConfigError: It is below 1.
        """
        if tokens_max < 1:
            raise ConfigError(f"tokens_max {tokens_max} is not allowed, allowed: 1 or more")
        self._tokens_max = tokens_max
        # Least lately sent first.
        self._blocks: dict[ReplicaId, OrderedDict[int, None]] = {}
        self._found_tokens = float(_PRIOR_TOKENS)
        self._right_tokens = _PRIOR_FRACTION * _PRIOR_TOKENS

    @property
    def precision(self) -> float:
        """Share of what was found here that engines had too, 0 to 1."""
        return self._right_tokens / self._found_tokens

    def found_tokens(self, replica: ReplicaId, prefix: Prefix, *, prompt_tokens: int) -> int:
        """Return how much of a prompt a replica is taken to have. Cost O(blocks of the prompt)."""
        blocks = self._blocks.get(replica)
        if not blocks:
            return 0
        found = 0
        for block in prefix.ids[: prefix.spared_max(prompt_tokens)]:
            if block not in blocks:
                break
            found += 1
        return found * prefix.block_tokens

    def discount_tokens(
        self, replicas: Iterable[ReplicaId], prefix: Prefix, *, prompt_tokens: int
    ) -> int:
        """Return what need not be read of a prompt, as far as can be told before it has a place.

        Args:
            replicas: That may take it.
            prefix: Of its prompt.
            prompt_tokens: At least 1.
        """
        if not prefix.ids:
            return 0
        found = [self.found_tokens(r, prefix, prompt_tokens=prompt_tokens) for r in replicas]
        return int(self.precision * sum(found) / len(found)) if found else 0

    def note_sent(self, replica: ReplicaId, prefix: Prefix, *, prompt_tokens: int) -> None:
        """Remember a prompt that was sent to a replica; the last of its blocks go first."""
        if not prefix.ids:
            return
        blocks = self._blocks.setdefault(replica, OrderedDict())
        for block in reversed(prefix.whole(prompt_tokens)):
            blocks[block] = None
            blocks.move_to_end(block)
        blocks_max = self._tokens_max // prefix.block_tokens
        while len(blocks) > blocks_max:
            blocks.popitem(last=False)

    def learn(self, found_tokens: int, *, spared_tokens: int) -> None:
        """Compare what was found for a request at its replica with what its engine had.

        Args:
            found_tokens: As ``found_tokens`` said when it was sent.
            spared_tokens: Of its prompt, what the engine did not read.
        """
        if found_tokens <= 0:
            return
        kept = 1 - 1 / _REQUESTS
        self._found_tokens = self._found_tokens * kept + found_tokens
        self._right_tokens = self._right_tokens * kept + min(found_tokens, spared_tokens)

    def forget(self, replica: ReplicaId) -> None:
        """Forget a replica whose engine has gone: the next one begins with nothing."""
        self._blocks.pop(replica, None)
