"""What does an engine do in one step that holds its KV in blocks, and remembers prefixes?

Model: as ``batch``, but KV is taken block by block, as prompts are read and tokens are produced.
Rule: in a step first every decoding sequence gets its token, then begun prompts are read on by
order of entry, then others enter while budget, seats and blocks last; nobody enters in a step that
had to preempt, nor before its whole prompt would fit. A sequence that enters holds the leading
runs of its prompt that are cached, and reads what comes after them; of a prompt that has been read
every whole run is cached. When blocks are short for tokens, the sequence that entered last loses
its KV; when they are short for a prompt, the prompt that entered last does. What a preempted
sequence finds in the cache when it comes back it need not read again.
Properties: INV-ENGINE-2 (tokens worked on = useful - spared + recomputed + lost in aborts),
INV-ENGINE-3 (see ``blocks``); at least one token of a prompt is read.
Trade-off: output is not cached, since traces tell nothing of who asks with it again; engines cache
it, so what they spare is a little more.
Source: vLLM's scheduler (running before waiting, no entry after a preemption, the whole input must
fit: ``scheduler_reserve_full_isl``), ADR 0019.
"""

from __future__ import annotations

from tokenweir.core.errors import ConfigError, InvariantError
from tokenweir.core.prefix import NO_PREFIX, Prefix
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import div_ceil
from tokenweir.engine.batch import Engine, StepResult
from tokenweir.engine.blocks import BlockPool
from tokenweir.engine.sequence import Phase, Sequence

__all__ = ["BlockEngine", "BlockSequence"]


class BlockSequence(Sequence):
    """One request inside an engine that holds KV in blocks."""

    __slots__ = ("covered_tokens", "runs", "runs_held", "spared_tokens")

    def __init__(
        self, sequence_id: str, *, prompt_tokens: int, output_tokens: int, runs: tuple[int, ...]
    ) -> None:
        """Start waiting; ``runs`` are the ids of the whole prefix blocks of its prompt."""
        super().__init__(sequence_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self.runs = runs
        self.runs_held = 0
        # Up to here it has been worked on, or spared, at least once.
        self.covered_tokens = 0
        self.spared_tokens = 0

    def kv_tokens(self, *, step: int) -> int:
        """Return KV tokens held before step number ``step``: what has been read and produced."""
        if self.phase is Phase.PREFILL:
            return self.prefilled_tokens
        return super().kv_tokens(step=step)


class BlockEngine(Engine):
    """One replica whose KV pool is made of blocks."""

    def __init__(
        self, profile: EngineProfile, *, discipline: str = "fifo", has_prefix_cache: bool = True
    ) -> None:
        """Start empty at step 0.

        Args:
            profile: How fast it is, and the size of pool and blocks.
            discipline: Row of ``DISCIPLINES``.
            has_prefix_cache: Whether what prompts share is held and read once.
        """
        super().__init__(profile, discipline=discipline)
        self._has_prefix_cache = has_prefix_cache
        self._block_tokens = profile.kv_block_tokens
        self._pool = BlockPool(profile.kv_tokens // profile.kv_block_tokens)
        # Decoding sequences by the step, modulo the size of a block, in which each needs a new one.
        self._due = [0] * profile.kv_block_tokens
        self._context_tokens = 0
        self._run_tokens = 0

    # --- requests -----------------------------------------------------------------------------

    def can_ever_run(self, *, prompt_tokens: int, output_tokens: int) -> bool:
        """Tell whether an empty pool could hold the request to its end."""
        return div_ceil(prompt_tokens + output_tokens, self._block_tokens) <= self._pool.blocks

    def submit(
        self,
        sequence_id: str,
        *,
        prompt_tokens: int,
        output_tokens: int,
        prefix: Prefix = NO_PREFIX,
    ) -> Sequence:
        """Put a request at the end of the waiting line; see ``Engine.submit``.

        Raises:
            ConfigError: A block of the prefix is not made of whole KV blocks.
        """
        self._check_lengths(sequence_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        runs: tuple[int, ...] = ()
        if self._has_prefix_cache and prefix.block_tokens:
            if prefix.block_tokens % self._block_tokens:
                raise ConfigError(
                    f"prefix blocks of {prefix.block_tokens} tokens are not allowed, allowed: a "
                    f"multiple of the {self._block_tokens} tokens of a KV block"
                )
            self._pool.check_run(prefix.block_tokens // self._block_tokens)
            self._run_tokens = prefix.block_tokens
            runs = prefix.whole(prompt_tokens)
        sequence = BlockSequence(
            sequence_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens, runs=runs
        )
        self._sequences[sequence_id] = sequence
        self._line.push_back(sequence)
        return sequence

    # --- what can be seen ---------------------------------------------------------------------

    @property
    def cached_blocks(self) -> int:
        """Blocks that nobody holds and that may be asked for again."""
        return self._pool.idle_blocks

    def check_invariants(self) -> None:
        """Recount. Cost O(sequences).

        Raises:
            InvariantError: INV-ENGINE-3 does not hold, or the line does not add up.
        """
        self._check_line()
        sequences = [s for s in self._batch.values() if isinstance(s, BlockSequence)]
        self._pool.check(
            private_blocks=sum(self._private_blocks(s) for s in sequences),
            holders=sum(s.runs_held for s in sequences),
        )
        context = sum(s.kv_tokens(step=self.step_index) for s in self.decoding())
        counts = (self.kv_used_tokens, self._context_tokens, sum(self._due))
        actual = (self._pool.used_blocks * self._block_tokens, context, self._decoding)
        if counts != actual:
            raise InvariantError(
                f"block engine says (KV used, context, decoding) {counts}, its batch adds up to "
                f"{actual}"
            )

    # --- a step -------------------------------------------------------------------------------

    def step(self) -> StepResult:
        """Run one step; see ``Engine.step``."""
        result = StepResult([], [], [], self._paced_ns)
        worked_before_tokens = self.worked_tokens_total
        self._attention = 0.0
        budget = self.profile.step_tokens_max
        finishing: list[Sequence] = []
        if self._decoding:
            finishing = self._decode_blocks(result)
            budget -= self._decoding
        context_tokens = self._context_tokens - sum(
            s.kv_tokens(step=self.step_index) + 1 for s in finishing
        )
        if self._prefilling:
            budget = self._read_on(result, budget=budget)
        if self._line.count and not result.preempted:
            self._let_enter(result, budget=budget)
        sequences = len(self._batch) + len(result.finished)
        self._prefilling = [s for s in self._prefilling if s.phase is Phase.PREFILL]
        self.step_index += 1
        for sequence in finishing:
            self._leave_batch(sequence)
            self._forget(sequence)
        result.finished[:0] = finishing
        self._sum_up()
        if not self._paced_ns:
            result.duration_ns = self.profile.duration_ns(
                tokens=self.worked_tokens_total - worked_before_tokens,
                kv_tokens=context_tokens,
                sequences=sequences,
                attention=self._attention,
            )
        return result

    def _decode_blocks(self, result: StepResult) -> list[Sequence]:
        """Give every decoding sequence its token; returns those whose last one it is."""
        phase = self.step_index % self._block_tokens
        while not self._pool.take(self._due[phase]):
            self._preempt(next(reversed(self._batch.values())), result)
        self.decode_tokens_total += self._decoding
        self._context_tokens += self._decoding
        return self._finishing.get(self.step_index, [])[:]

    def _read_on(self, result: StepResult, *, budget: int) -> int:
        """Read on in begun prompts, in order of entry; returns what is left of the budget."""
        number = 0
        while number < len(self._prefilling) and budget > 0:
            sequence = self._prefilling[number]
            chunk = self._chunk(sequence, budget=budget)
            if self._pool.take(self._blocks_for(sequence, chunk)):
                budget -= chunk
                self._read(sequence, result, chunk=chunk)
                number += 1
                continue
            last = next(s for s in reversed(self._prefilling) if s.phase is Phase.PREFILL)
            self._preempt(last, result)
        return budget

    def _let_enter(self, result: StepResult, *, budget: int) -> None:
        # A seat that is left in this step is free in the next.
        seats = self.profile.sequences_max - len(self._batch) - len(result.finished)
        while budget > 0 and seats > 0 and self._line.count:
            sequence = self._next_fitting()
            if sequence is None:
                return
            self._line.remove(sequence)
            self._hold_cached(sequence)
            self._batch[sequence.sequence_id] = sequence
            self._prefilling.append(sequence)
            seats -= 1
            chunk = self._chunk(sequence, budget=budget)
            # The whole prompt fits, so its first chunk does.
            self._pool.take(self._blocks_for(sequence, chunk))
            budget -= chunk
            self._read(sequence, result, chunk=chunk)

    def _next_fitting(self) -> BlockSequence | None:
        head = self._line.head()
        if isinstance(head, BlockSequence) and self._fits(head):
            return head
        if self.discipline == "fifo":
            return None
        other = self._line.first_fitting(self._pool.available_blocks * self._block_tokens)
        return other if isinstance(other, BlockSequence) and self._fits(other) else None

    def _fits(self, sequence: BlockSequence) -> bool:
        """Tell whether all that it has to prefill would fit, beside what the cache holds of it."""
        pool = self._pool
        needed = div_ceil(sequence.prefill_tokens, self._block_tokens)
        if needed <= pool.available_blocks - pool.idle_blocks:
            return True
        cached, idle = pool.cached(self._findable(sequence))
        return needed - cached * pool.run_blocks <= pool.available_blocks - idle * pool.run_blocks

    def _findable(self, sequence: BlockSequence) -> tuple[int, ...]:
        """Return the runs that it need not read if they are cached: all but its last token."""
        if not self._run_tokens:
            return ()
        return sequence.runs[: (sequence.prefill_tokens - 1) // self._run_tokens]

    def _hold_cached(self, sequence: BlockSequence) -> None:
        sequence.begin_prefill()
        if sequence.preemptions == 0:
            self.entered_prompt_tokens_total += sequence.prompt_tokens
        runs = self._findable(sequence)
        cached, _ = self._pool.cached(runs)
        self._pool.hold(runs[:cached])
        sequence.runs_held = cached
        sequence.prefilled_tokens = cached * self._run_tokens
        spared = sequence.prefilled_tokens - sequence.covered_tokens
        if spared > 0:
            sequence.covered_tokens += spared
            sequence.spared_tokens += spared
            self.spared_tokens_total += spared

    def _chunk(self, sequence: Sequence, *, budget: int) -> int:
        left = sequence.prefill_tokens - sequence.prefilled_tokens
        return min(budget, self.profile.chunk_tokens_max, left)

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        read, size = sequence.prefilled_tokens, self._block_tokens
        return div_ceil(read + chunk, size) - div_ceil(read, size)

    def _read(self, sequence: Sequence, result: StepResult, *, chunk: int) -> None:
        assert isinstance(sequence, BlockSequence)
        before = sequence.prefilled_tokens
        after = sequence.prefilled_tokens = before + chunk
        self._attention += chunk * (before + chunk / 2)
        self.prefill_tokens_total += chunk
        covered = sequence.covered_tokens
        if covered > before:
            self.recomputed_tokens_total += min(after, covered) - before
        sequence.covered_tokens = max(covered, after)
        while sequence.runs_held < min(len(sequence.runs), after // max(1, self._run_tokens)):
            self._pool.share(sequence.runs[sequence.runs_held])
            sequence.runs_held += 1
        if after == sequence.prefill_tokens:
            self._end_reading(sequence, result)

    def _end_reading(self, sequence: BlockSequence, result: StepResult) -> None:
        if not sequence.has_first_token:
            result.first.append(sequence)
        if sequence.begin_decode(next_step=self.step_index + 1):
            self._return_kv(sequence, held_tokens=sequence.prefill_tokens)
            del self._batch[sequence.sequence_id]
            self._forget(sequence)
            result.finished.append(sequence)
            return
        self._decoding += 1
        self._context_tokens += sequence.prefill_tokens
        self._due[self._phase_of(sequence)] += 1
        self._finishing.setdefault(sequence.finish_step, []).append(sequence)

    def _phase_of(self, sequence: Sequence) -> int:
        return (sequence.decode_from_step - sequence.prefill_tokens) % self._block_tokens

    # --- leaving ------------------------------------------------------------------------------

    def _preempt(self, sequence: Sequence, result: StepResult) -> None:
        assert isinstance(sequence, BlockSequence)
        held = sequence.kv_tokens(step=self.step_index)
        sequence.covered_tokens = max(sequence.covered_tokens, held)
        self._leave_batch(sequence)
        sequence.lose_kv(step=self.step_index)
        self._line.push_front(sequence)
        self.preemptions_total += 1
        result.preempted.append(sequence)

    def _leave_batch(self, sequence: Sequence) -> None:
        assert isinstance(sequence, BlockSequence)
        held = sequence.kv_tokens(step=self.step_index)
        self._return_kv(sequence, held_tokens=held)
        del self._batch[sequence.sequence_id]
        if sequence.phase is Phase.PREFILL:
            self._prefilling.remove(sequence)
        else:
            self._decoding -= 1
            self._context_tokens -= held
            self._due[self._phase_of(sequence)] -= 1
            finishing = self._finishing[sequence.finish_step]
            finishing.remove(sequence)
            if not finishing:
                del self._finishing[sequence.finish_step]
        self._sum_up()

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.sequence_id]
        sequence.end(step=self.step_index)

    def _return_kv(self, sequence: BlockSequence, *, held_tokens: int) -> None:
        held_blocks = div_ceil(held_tokens, self._block_tokens)
        self._pool.give_back(held_blocks - sequence.runs_held * self._pool.run_blocks)
        self._pool.let_go(sequence.runs[: sequence.runs_held])
        sequence.runs_held = 0

    def _private_blocks(self, sequence: BlockSequence) -> int:
        held = div_ceil(sequence.kv_tokens(step=self.step_index), self._block_tokens)
        return held - sequence.runs_held * self._pool.run_blocks

    def _sum_up(self) -> None:
        self.kv_used_tokens = self._pool.used_blocks * self._block_tokens
