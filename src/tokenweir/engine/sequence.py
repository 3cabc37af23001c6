"""What does the engine remember of one request?"""

from __future__ import annotations

from enum import Enum

__all__ = ["Phase", "Sequence"]


class Phase(Enum):
    """Where a sequence is in the engine."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


class Sequence:
    """One request inside the engine; owned by the engine, read by its driver.

    Decoding sequences all advance one token per step, so their progress is not counted but derived
    from the step at which they began: a step costs nothing per decoding sequence.
    """

    __slots__ = (
        "_generated_tokens",
        "decode_from_step",
        "finish_step",
        "has_first_token",
        "output_tokens",
        "phase",
        "preemptions",
        "prefill_tokens",
        "prefilled_tokens",
        "prompt_tokens",
        "sequence_id",
    )

    def __init__(self, sequence_id: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Start waiting, with the whole prompt to prefill."""
        self.sequence_id = sequence_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.phase = Phase.WAITING
        self.has_first_token = False
        self.preemptions = 0
        # What has to be prefilled before (more) output comes: after a preemption also the output.
        self.prefill_tokens = prompt_tokens
        self.prefilled_tokens = 0
        self.decode_from_step = 0
        self.finish_step = 0
        self._generated_tokens = 0

    def generated_tokens(self, *, step: int) -> int:
        """Return output tokens produced before step number ``step``."""
        if self.phase is Phase.DECODE:
            return self._generated_tokens + step - self.decode_from_step
        return self._generated_tokens

    def kv_tokens(self, *, step: int) -> int:
        """Return KV tokens held before step number ``step``: the whole prefill from its start."""
        if self.phase is Phase.DECODE:
            return self.prefill_tokens + step - self.decode_from_step
        return self.prefill_tokens if self.phase is Phase.PREFILL else 0

    def begin_prefill(self) -> None:
        """Enter the batch."""
        self.phase = Phase.PREFILL

    def begin_decode(self, *, next_step: int) -> bool:
        """Take the token that ends the prefill; returns whether it was the last one."""
        self._generated_tokens += 1
        self.has_first_token = True
        remaining = self.output_tokens - self._generated_tokens
        if remaining <= 0:
            self.phase = Phase.ENDED
            return True
        self.phase = Phase.DECODE
        self.decode_from_step = next_step
        self.finish_step = next_step + remaining - 1
        return False

    def lose_kv(self, *, step: int) -> None:
        """Go back to waiting; prompt and output so far have to be prefilled again."""
        self._generated_tokens = self.generated_tokens(step=step)
        self.phase = Phase.WAITING
        self.preemptions += 1
        self.prefill_tokens = self.prompt_tokens + self._generated_tokens
        self.prefilled_tokens = 0

    def end(self, *, step: int) -> None:
        """Leave the engine with what has been produced before step ``step``."""
        self._generated_tokens = self.generated_tokens(step=step)
        self.phase = Phase.ENDED

    def __repr__(self) -> str:
        """Show the state in one line."""
        return (
            f"Sequence({self.sequence_id}: {self.phase.value}, prompt {self.prompt_tokens}, "
            f"output {self._generated_tokens}/{self.output_tokens})"
        )
