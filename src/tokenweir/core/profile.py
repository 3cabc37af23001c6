"""How fast is an engine, and how much does it hold?

Model: a step works on n <= ``step_tokens_max`` tokens, one per decoding request, the rest prefill,
at most ``chunk_tokens_max`` per request; B = requests in it; k = context tokens of those that
decode; a = sum over prefill chunks of chunk x (context before it + half the chunk).
Rule: a step takes T = max(``step_ns`` + n ``token_ns``, ``compute_step_ns`` + n
``compute_token_ns``) + k ``kv_token_ns`` + B ``sequence_ns`` + a ``attention_ns``. The first arm is
bound by reading the weights, the second by computing.
Source: each profile's own, in its file. The article's engine takes 10 ms for a step whatever is in
it, so its decode pace never slows down; real ones slow down with batch and context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["EngineProfile", "attention_pairs"]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine on one machine.

    Attributes:
        name: As on the command line.
        source: Where the numbers come from.
        step_ns: Length of an empty step, above 0.
        step_tokens_max: Tokens a step can work on, prefill and decode together.
        chunk_tokens_max: Prefill tokens of one request in one step.
        kv_tokens: Size of the KV pool.
        sequences_max: Running requests, at most ``step_tokens_max``.
        kv_block_tokens: Of a KV block, where the pool is modelled in blocks.
        token_ns: What each token of a step adds.
        kv_token_ns: What each context token of a decoding request adds.
        compute_step_ns: The other arm of the step time, 0 where there is none.
        compute_token_ns: Its price of a token, at least ``token_ns`` where there is one.
        sequence_ns: What each request in the step adds.
        attention_ns: What each pair of prefill token and context token adds.
    """

    name: str
    source: str
    step_ns: Nanos
    step_tokens_max: int
    chunk_tokens_max: int
    kv_tokens: int
    sequences_max: int
    token_ns: float = 0.0
    kv_token_ns: float = 0.0
    compute_step_ns: Nanos = 0
    compute_token_ns: float = 0.0
    sequence_ns: float = 0.0
    attention_ns: float = 0.0
    kv_block_tokens: int = 16

    def __post_init__(self) -> None:
        """Check ranges and relations."""
        for field in (
            "step_ns",
            "step_tokens_max",
            "chunk_tokens_max",
            "kv_tokens",
            "kv_block_tokens",
        ):
            if getattr(self, field) < 1:
                raise ConfigError(
                    f"{field} {getattr(self, field)} is not allowed, allowed: 1 or more"
                )
        for field in (
            "token_ns",
            "kv_token_ns",
            "compute_step_ns",
            "compute_token_ns",
            "sequence_ns",
            "attention_ns",
        ):
            if not getattr(self, field) >= 0:
                raise ConfigError(
                    f"{field} {getattr(self, field)} is not allowed, allowed: 0 or more"
                )
        if not 1 <= self.sequences_max <= self.step_tokens_max:
            raise ConfigError(
                f"sequences_max {self.sequences_max} is not allowed, allowed: 1 up to "
                f"step_tokens_max {self.step_tokens_max}, since each decodes a token a step"
            )

    @property
    def is_paced(self) -> bool:
        """Whether every step takes the same time, so that steps lie on a fixed grid."""
        return not any((
            self.token_ns,
            self.kv_token_ns,
            self.compute_token_ns,
            self.sequence_ns,
            self.attention_ns,
        ))

    def duration_ns(
        self,
        *,
        tokens: float,
        kv_tokens: float = 0,
        sequences: float = 0,
        attention: float = 0,
    ) -> Nanos:
        """Return how long a step takes.

        Args:
            tokens: It works on, prefill and decode together.
            kv_tokens: Context of the requests that decode in it.
            sequences: Requests in it.
            attention: Pairs of prefill token and context token.
        """
        reading_ns = self.step_ns + tokens * self.token_ns
        computing_ns = self.compute_step_ns + tokens * self.compute_token_ns
        rest_ns = (
            kv_tokens * self.kv_token_ns
            + sequences * self.sequence_ns
            + attention * self.attention_ns
        )
        return int(max(reading_ns, computing_ns) + rest_ns)

    @property
    def tokens_per_s(self) -> float:
        """Most tokens it can work on in a second, contexts aside."""
        duration_ns = self.duration_ns(tokens=self.step_tokens_max)
        return self.step_tokens_max * NS_PER_S / duration_ns

    def capacity_rps(self, lengths: Sequence[tuple[int, int]]) -> float:
        """Return 1 / mean engine seconds per request, whatever the policy.

        Args:
            lengths: (prompt tokens, true output tokens) of each request, both at least 1.
        """
        total_ns = sum(self.request_ns(prompt, output) for prompt, output in lengths)
        return len(lengths) * NS_PER_S / total_ns

    def unloaded_first_token_ns(self, prompt_tokens: int) -> Nanos:
        """Return how long an engine that serves nobody else needs for a first token."""
        chunk = min(self.chunk_tokens_max, self.step_tokens_max)
        full, rest = divmod(prompt_tokens, chunk)
        steps_ns = full * self.duration_ns(tokens=chunk, sequences=1)
        if rest or not full:
            steps_ns += self.duration_ns(tokens=rest, sequences=1)
        return steps_ns + int(attention_pairs(prompt_tokens) * self.attention_ns)

    def request_ns(
        self, prompt_tokens: int, output_tokens: int, *, cached_tokens: int = 0
    ) -> float:
        """Return the engine time that one request takes of a full batch.

        In a full step each token bears its share of it; what context, attention and the request
        itself add is charged to the request.

        Args:
            prompt_tokens: At least 1.
            output_tokens: At least 1.
            cached_tokens: Of the prompt, what need not be read.
        """
        unread_tokens = prompt_tokens - cached_tokens
        tokens = unread_tokens + output_tokens - 1
        share = tokens * self.duration_ns(tokens=self.step_tokens_max) / self.step_tokens_max
        context = (output_tokens - 1) * (prompt_tokens + output_tokens / 2)
        chunks = -(-unread_tokens // self.chunk_tokens_max)
        return (
            share
            + context * self.kv_token_ns
            + (output_tokens - 1 + chunks) * self.sequence_ns
            + attention_pairs(prompt_tokens, cached_tokens=cached_tokens) * self.attention_ns
        )


def attention_pairs(prompt_tokens: int, *, cached_tokens: int = 0) -> float:
    """Return the pairs of prompt token and context token that reading a prompt looks at."""
    return (prompt_tokens * prompt_tokens - cached_tokens * cached_tokens) / 2
