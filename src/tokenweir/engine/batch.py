"""What does a continuously batching engine do in one step?

Model: a step has a budget of B tokens. Every decoding sequence takes one and produces one output
token; the rest feeds prefill in order of entry, at most ``chunk_tokens_max`` a sequence. A sequence
enters the batch when the KV pool has room for its whole prefill, which it holds from then on.
When the pool cannot take the step's decode tokens, the sequence that entered last loses its KV and
goes back to the head of the waiting line, to prefill prompt and output again.
Disciplines: ``fifo`` lets only the head of the line enter; ``first_fit`` lets whoever fits.
Properties: INV-ENGINE-1 (KV in use = sum over the batch, never over the pool), INV-ENGINE-2 (tokens
worked on = useful + recomputed + lost in aborts).
Trade-off: real engines allocate block by block (see ``block_batch``); whole prefills keep the
account exact and cheap.
Source: this allocation reproduces the article's occupancy and gate rows; its text leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.prefix import NO_PREFIX, Prefix
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.engine.line import WaitingLine
from tokenweir.engine.sequence import Phase, Sequence

__all__ = ["DISCIPLINES", "Engine", "StepResult"]

DISCIPLINES: tuple[str, ...] = ("fifo", "first_fit")


@dataclass(slots=True)
class StepResult:
    """What one step brought about; lists are in order of entry.

    Attributes:
        first: Sequences that produced their very first output token.
        finished: Sequences that produced their last one.
        preempted: Sequences that lost their KV.
        duration_ns: How long it took.
    """

    first: list[Sequence]
    finished: list[Sequence]
    preempted: list[Sequence]
    duration_ns: Nanos


class Engine:
    """One replica: a waiting line, a batch and a KV pool."""

    def __init__(self, profile: EngineProfile, *, discipline: str = "fifo") -> None:
        """Start empty at step 0.

        Raises:
            ConfigError: The discipline is not a row of ``DISCIPLINES``.
        """
        if discipline not in DISCIPLINES:
            raise ConfigError(
                f"unknown queue discipline {discipline!r}, allowed: {', '.join(DISCIPLINES)}"
            )
        self.profile = profile
        self.discipline = discipline
        self.step_index = 0
        self.kv_used_tokens = 0
        self.preemptions_total = 0
        self.prefill_tokens_total = 0
        self.decode_tokens_total = 0
        self.recomputed_tokens_total = 0
        # Prompts that entered for the first time, and what of them was not read but found.
        self.entered_prompt_tokens_total = 0
        self.spared_tokens_total = 0
        self._sequences: dict[str, Sequence] = {}
        self._line = WaitingLine()
        # Ordered by entry: the last one is the next to be preempted.
        self._batch: dict[str, Sequence] = {}
        self._prefilling: list[Sequence] = []
        self._prefilling_kv_tokens = 0
        self._attention = 0.0
        self._decoding = 0
        self._paced_ns = profile.step_ns if profile.is_paced else 0
        self._finishing: dict[int, list[Sequence]] = {}

    # --- requests -----------------------------------------------------------------------------

    def can_ever_run(self, *, prompt_tokens: int, output_tokens: int) -> bool:
        """Tell whether an empty pool could hold the request to its end."""
        return prompt_tokens + output_tokens <= self.profile.kv_tokens

    def submit(
        self,
        sequence_id: str,
        *,
        prompt_tokens: int,
        output_tokens: int,
        prefix: Prefix = NO_PREFIX,
    ) -> Sequence:
        """Put a request at the end of the waiting line.

        Args:
            sequence_id: Unique in the engine.
            prompt_tokens: At least 1.
            output_tokens: What it will produce before it ends, at least 1.
            prefix: Of the prompt; only an engine that holds KV in blocks remembers any.

        Raises:
            ContractError: The id is in the engine, or the request could never run.
        """
        self._check_lengths(sequence_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        sequence = Sequence(sequence_id, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self._sequences[sequence_id] = sequence
        self._line.push_back(sequence)
        return sequence

    def _check_lengths(self, sequence_id: str, *, prompt_tokens: int, output_tokens: int) -> None:
        if sequence_id in self._sequences:
            raise ContractError(f"sequence {sequence_id} is in the engine already")
        if prompt_tokens < 1 or output_tokens < 1:
            raise ContractError(
                f"sequence {sequence_id} has prompt {prompt_tokens} and output {output_tokens} "
                "tokens, both must be at least 1"
            )
        if not self.can_ever_run(prompt_tokens=prompt_tokens, output_tokens=output_tokens):
            raise ContractError(
                f"sequence {sequence_id} needs {prompt_tokens + output_tokens} KV tokens, "
                f"the pool has {self.profile.kv_tokens}"
            )

    def abort(self, sequence_id: str) -> Sequence | None:
        """Take a request out, wherever it is; None where it is not in the engine."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None:
            return None
        if sequence.phase is Phase.WAITING:
            self._line.remove(sequence)
        else:
            self._leave_batch(sequence)
        sequence.end(step=self.step_index)
        return sequence

    # --- what can be seen ---------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        return not self._sequences

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Sequences in the waiting line."""
        return self._line.count

    @property
    def waiting_prompt_tokens(self) -> int:
        """Tokens that the waiting line has to prefill."""
        return self._line.tokens

    @property
    def worked_tokens_total(self) -> int:
        """Tokens of budget spent since the start."""
        return self.prefill_tokens_total + self.decode_tokens_total

    def get(self, sequence_id: str) -> Sequence | None:
        """Return a sequence that is in the engine."""
        return self._sequences.get(sequence_id)

    def batch(self) -> Iterable[Sequence]:
        """Return the running sequences, in order of entry."""
        return self._batch.values()

    def decoding(self) -> Iterable[Sequence]:
        """Yield the sequences that produce a token each step, in order of entry."""
        return (s for s in self._batch.values() if s.phase is Phase.DECODE)

    def check_invariants(self) -> None:
        """Recount. Cost O(sequences).

        Raises:
            InvariantError: INV-ENGINE-1 does not hold.
        """
        held = sum(s.kv_tokens(step=self.step_index) for s in self._batch.values())
        if held != self.kv_used_tokens or held > self.profile.kv_tokens:
            raise InvariantError(
                f"engine says {self.kv_used_tokens} KV tokens of {self.profile.kv_tokens}, "
                f"its batch adds up to {held}"
            )
        self._check_line()

    def _check_line(self) -> None:
        waiting = sum(
            s.prefill_tokens for s in self._sequences.values() if s.phase is Phase.WAITING
        )
        if waiting != self.waiting_prompt_tokens:
            raise InvariantError(
                f"engine says {self.waiting_prompt_tokens} waiting tokens, "
                f"its line adds up to {waiting}"
            )
        if len(self._batch) + self._line.count != len(self._sequences):
            raise InvariantError("a sequence is neither in the batch nor in the line")

    # --- a step -------------------------------------------------------------------------------

    def step(self) -> StepResult:
        """Run one step and say what it brought about, and how long it takes.

        What it brought about is true at its end; the engine's own account moves at once.
        """
        result = StepResult([], [], [], self._paced_ns)
        worked_before_tokens = self.prefill_tokens_total + self.decode_tokens_total
        if self._line.count:
            self._enter()
        if self._decoding:
            self._decode(result)
        # Taken between the phases: what decodes in this step, and what is prefilled in it.
        context_tokens = self.kv_used_tokens - self._prefilling_kv_tokens
        sequences = len(self._batch) + len(result.finished)
        self._attention = 0.0
        if self._prefilling:
            self._prefill(result)
        self.step_index += 1
        if not self._paced_ns:
            result.duration_ns = self.profile.duration_ns(
                tokens=self.worked_tokens_total - worked_before_tokens,
                kv_tokens=context_tokens,
                sequences=sequences,
                attention=self._attention,
            )
        return result

    def _enter(self) -> None:
        line = self._line
        room = self.profile.kv_tokens - self.kv_used_tokens
        seats = self.profile.sequences_max - len(self._batch)
        is_fifo = self.discipline == "fifo"
        while seats > 0 and room > 0:
            sequence = line.head() if is_fifo else line.first_fitting(room)
            if sequence is None or sequence.prefill_tokens > room:
                return
            line.remove(sequence)
            room -= sequence.prefill_tokens
            seats -= 1
            self._enter_batch(sequence)

    def _enter_batch(self, sequence: Sequence) -> None:
        self.kv_used_tokens += sequence.prefill_tokens
        sequence.begin_prefill()
        self._batch[sequence.sequence_id] = sequence
        self._prefilling.append(sequence)
        self._prefilling_kv_tokens += sequence.prefill_tokens

    def _decode(self, result: StepResult) -> None:
        kv_tokens = self.profile.kv_tokens
        while self.kv_used_tokens + self._decoding > kv_tokens:
            self._preempt(next(reversed(self._batch.values())), result)
        step = self.step_index
        self.decode_tokens_total += self._decoding
        self.kv_used_tokens += self._decoding
        for sequence in self._finishing.pop(step, ()):
            self._decoding -= 1
            del self._batch[sequence.sequence_id]
            del self._sequences[sequence.sequence_id]
            sequence.end(step=step + 1)
            self.kv_used_tokens -= sequence.prefill_tokens + step + 1 - sequence.decode_from_step
            result.finished.append(sequence)

    def _preempt(self, sequence: Sequence, result: StepResult) -> None:
        self._leave_batch(sequence)
        # What it had worked out so far has to be worked out again.
        self.recomputed_tokens_total += (
            sequence.prefilled_tokens
            if sequence.phase is Phase.PREFILL
            else sequence.kv_tokens(step=self.step_index)
        )
        sequence.lose_kv(step=self.step_index)
        self._line.push_front(sequence)
        self.preemptions_total += 1
        result.preempted.append(sequence)

    def _leave_batch(self, sequence: Sequence) -> None:
        self.kv_used_tokens -= sequence.kv_tokens(step=self.step_index)
        del self._batch[sequence.sequence_id]
        if sequence.phase is Phase.PREFILL:
            self._prefilling.remove(sequence)
            self._prefilling_kv_tokens -= sequence.prefill_tokens
            return
        self._decoding -= 1
        finishing = self._finishing[sequence.finish_step]
        finishing.remove(sequence)
        if not finishing:
            del self._finishing[sequence.finish_step]

    def _prefill(self, result: StepResult) -> None:
        # The decode phase has run: what it did not spend is left for prompts.
        budget = self.profile.step_tokens_max - self._decoding - len(result.finished)
        chunk_max = self.profile.chunk_tokens_max
        next_step = self.step_index + 1
        done = 0
        for sequence in self._prefilling:
            if budget <= 0:
                break
            chunk = min(budget, chunk_max, sequence.prefill_tokens - sequence.prefilled_tokens)
            self._attention += chunk * (sequence.prefilled_tokens + chunk / 2)
            sequence.prefilled_tokens += chunk
            budget -= chunk
            self.prefill_tokens_total += chunk
            if sequence.prefilled_tokens == sequence.prefill_tokens:
                done += 1
                self._end_prefill(sequence, result, next_step=next_step)
        if done:
            self._prefilling = [s for s in self._prefilling if s.phase is Phase.PREFILL]

    def _end_prefill(self, sequence: Sequence, result: StepResult, *, next_step: int) -> None:
        self._prefilling_kv_tokens -= sequence.prefill_tokens
        if not sequence.has_first_token:
            result.first.append(sequence)
        if sequence.begin_decode(next_step=next_step):
            del self._batch[sequence.sequence_id]
            del self._sequences[sequence.sequence_id]
            self.kv_used_tokens -= sequence.prefill_tokens
            result.finished.append(sequence)
            return
        self._decoding += 1
        self._finishing.setdefault(sequence.finish_step, []).append(sequence)
