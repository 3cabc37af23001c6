"""What was measured of an engine, in the words of the step-time model?

Model: a measured time is a mean over kinds of steps, each with its share. A kernel timing is one
step; a first token is the steps of its prompt, each with share 1; a pace under load is a mean over
steps with and without a prefill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenweir.core.profile import EngineProfile

__all__ = ["Curve", "Measured", "Reading", "Step", "predicted_ns", "prefill_steps", "serving_steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of step.

    Attributes:
        tokens: It works on, prefill and decode together.
        kv_tokens: Context of the requests that decode in it.
        sequences: Requests in it.
        attention: Pairs of prefill token and context token.
        share: How often it counts in what was measured.
    """

    tokens: float
    kv_tokens: float = 0.0
    sequences: float = 0.0
    attention: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured time, above 0."""

    value_ns: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Measurements of one kind; each curve weighs as much as another, however many it has.

    Attributes:
        name: As reports call it.
        points: At least one.
        has_overhead: Whether each value also holds a constant that no step knows, such as what the
            HTTP server takes for a request.
    """

    name: str
    points: tuple[Measured, ...]
    has_overhead: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What files told.

    Attributes:
        curves: What was measured.
        told: Sizes that the files know, by field of ``EngineProfile``.
        source: One line for the profile's source.
    """

    curves: tuple[Curve, ...]
    source: str
    told: tuple[tuple[str, int], ...] = ()


def predicted_ns(point: Measured, engine: EngineProfile) -> float:
    """Return what a profile says of a measured time, overheads aside."""
    return sum(
        step.share
        * engine.duration_ns(
            tokens=step.tokens,
            kv_tokens=step.kv_tokens,
            sequences=step.sequences,
            attention=step.attention,
        )
        for step in point.steps
    )


def prefill_steps(prompt_tokens: int, *, step_tokens_max: int) -> tuple[Step, ...]:
    """Return the steps that read one prompt on an engine that does nothing else."""
    return tuple(_prefill(prompt_tokens, step_tokens_max))


def _prefill(prompt_tokens: int, step_tokens_max: int) -> Iterator[Step]:
    for before in range(0, prompt_tokens, step_tokens_max):
        chunk = min(step_tokens_max, prompt_tokens - before)
        yield Step(chunk, sequences=1, attention=chunk * (before + chunk / 2))


def serving_steps(
    *,
    decoding: float,
    kv_tokens: float,
    prefill_tokens: float,
    attention: float,
    prefill_share: float,
) -> tuple[Step, ...]:
    """Return the mean step of an engine under steady load, as two kinds of steps.

    Prefills come in lumps, so that some steps carry much of it and the others none: a mean over
    both is not the step with the mean number of tokens, since the step time has a bend.

    Args:
        decoding: Requests that decode in each step.
        kv_tokens: Their context.
        prefill_tokens: Per step, over all steps.
        attention: Pairs per step, over all steps.
        prefill_share: Of the steps, above 0 and up to 1, those that carry prefill.
    """
    if prefill_tokens <= 0:
        return (Step(decoding, kv_tokens, decoding),)
    plain = Step(decoding, kv_tokens, decoding, share=1.0 - prefill_share)
    loaded = Step(
        decoding + prefill_tokens / prefill_share,
        kv_tokens,
        decoding + 1,
        attention / prefill_share,
        share=prefill_share,
    )
    return (plain, loaded)
