"""How much has an engine still to read before it can begin with something new?

Model: prompts dispatched to a replica whose first token has not come, in order of dispatch, which
is the order engines read them in; R = prefill rate, A = time per pair of token and context.
Rule: of the first of them, what can have been read since its turn came counts as read; its turn
comes when it is dispatched to an engine that reads nothing, or when the one before it is through.
Where an engine reads only so much of a prompt in a step and others beside it (its own limit on long
prompts), a newcomer waits for no more than that of each.
Properties: never below 0, never more than what was dispatched; exact again at each first token.
Trade-off: engines tell nothing of a prompt half read. Without this the whole of it would count
until its first token, and the engine would run its last steps half empty.
"""

from __future__ import annotations

from collections import OrderedDict

from tokenweir.core.units import NS_PER_S, Nanos, ReservationId

__all__ = ["Reading"]


class Reading:
    """Prompts that one replica has to read."""

    __slots__ = ("_pairs", "_prompts", "_since_ns", "tokens")

    def __init__(self) -> None:
        """Start with nothing to read."""
        self._prompts: OrderedDict[ReservationId, tuple[int, float]] = OrderedDict()
        # Of all prompts, as if nothing of them had been read.
        self.tokens = 0
        self._pairs = 0.0
        self._since_ns: Nanos = 0

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self._prompts)

    def copy(self) -> Reading:
        """Return one that can be changed without changing this. Cost O(n)."""
        other = Reading()
        other._prompts = self._prompts.copy()
        other.tokens, other._pairs, other._since_ns = self.tokens, self._pairs, self._since_ns
        return other

    def add(
        self, reservation_id: ReservationId, *, tokens: int, pairs: float, now_ns: Nanos
    ) -> None:
        """Let a prompt be read after the others."""
        if not self._prompts:
            self._since_ns = now_ns
        self._prompts[reservation_id] = (tokens, pairs)
        self.tokens += tokens
        self._pairs += pairs

    def remove(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Take out a prompt that has been read, or whose request has ended."""
        prompt = self._prompts.get(reservation_id)
        if prompt is None:
            return
        if next(iter(self._prompts)) == reservation_id:
            self._since_ns = now_ns
        del self._prompts[reservation_id]
        self.tokens -= prompt[0]
        self._pairs -= prompt[1]

    def left(
        self,
        *,
        tokens_per_s: float | None,
        pair_ns: float,
        now_ns: Nanos,
        chunk_tokens: int | None = None,
    ) -> tuple[float, float]:
        """Return tokens and pairs that are still to be read before a newcomer.

        Args:
            tokens_per_s: Prefill rate, or None where it is not known: then nothing counts as read.
            pair_ns: What each pair takes beside that.
            now_ns: Monotonic time.
            chunk_tokens: Most that a step reads of one prompt where others are read beside it, or
                None where each is read whole before the next. Cost O(prompts) where there is one.
        """
        if chunk_tokens is not None:
            return self._beside(chunk_tokens)
        if tokens_per_s is None or not self._prompts:
            return self.tokens, self._pairs
        tokens, pairs = next(iter(self._prompts.values()))
        whole_ns = tokens / tokens_per_s * NS_PER_S + pairs * pair_ns
        elapsed_ns = now_ns - self._since_ns
        read = 1.0 if elapsed_ns >= whole_ns else elapsed_ns / whole_ns
        return self.tokens - tokens * read, self._pairs - pairs * read

    def _beside(self, chunk_tokens: int) -> tuple[float, float]:
        """Return what the next step reads of all prompts, by the mean pairs of each."""
        tokens = pairs = 0.0
        for prompt_tokens, prompt_pairs in self._prompts.values():
            read = min(prompt_tokens, chunk_tokens)
            tokens += read
            if prompt_tokens:
                pairs += prompt_pairs * read / prompt_tokens
        return tokens, pairs

    def due_ns(
        self, tokens_left_max: float, *, tokens_per_s: float, pair_ns: float
    ) -> Nanos | None:
        """Return when no more than this is left, or None where the first prompt's end is too early.

        Args:
            tokens_left_max: What may be left.
            tokens_per_s: Prefill rate.
            pair_ns: What each pair takes beside that.
        """
        if not self._prompts:
            return None
        tokens, pairs = next(iter(self._prompts.values()))
        excess = self.tokens - tokens_left_max
        if tokens == 0 or excess > tokens:
            return None
        whole_ns = tokens / tokens_per_s * NS_PER_S + pairs * pair_ns
        return self._since_ns + int(max(0.0, excess / tokens) * whole_ns) + 1
