"""The engine model: budget, KV, order, preemption, conservation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.profile import EngineProfile
from tokenweir.engine.batch import DISCIPLINES, Engine
from tokenweir.engine.sequence import Phase
from tokenweir.profiles import profile

SMALL = EngineProfile(
    name="small",
    source="made up for these tests",
    step_ns=10,
    step_tokens_max=40,
    chunk_tokens_max=16,
    kv_tokens=120,
    sequences_max=8,
)

_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 70), st.integers(1, 50)),
        st.tuples(st.just("abort"), st.integers(0, 1_000), st.just(0)),
        st.tuples(st.just("steps"), st.integers(1, 12), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@given(actions=_ACTIONS)
@settings(max_examples=120, deadline=None)
def test_engine_when_anything_happens_then_tokens_and_requests_are_conserved(
    discipline: str, actions: list[tuple[str, int, int]]
) -> None:
    """Each request ends once with its length, and the work adds up to what they needed."""
    engine = Engine(SMALL, discipline=discipline)
    lengths: dict[str, tuple[int, int]] = {}
    finished: list[str] = []
    live: list[str] = []
    aborted = lost_tokens = 0

    def step() -> None:
        result = engine.step()
        engine.check_invariants()
        for sequence in result.finished:
            finished.append(sequence.sequence_id)
            live.remove(sequence.sequence_id)
            assert sequence.generated_tokens(step=engine.step_index) == sequence.output_tokens

    for what, first, second in actions:
        if what == "submit" and first + second <= SMALL.kv_tokens:
            name = f"s{len(lengths)}"
            lengths[name] = (first, second)
            live.append(name)
            engine.submit(name, prompt_tokens=first, output_tokens=second)
        elif what == "abort" and live:
            name = live.pop(first % len(live))
            sequence = engine.get(name)
            assert sequence is not None
            lost_tokens += (
                sequence.kv_tokens(step=engine.step_index)
                if sequence.phase is Phase.DECODE
                else sequence.prefilled_tokens
            )
            assert engine.abort(name) is sequence
            aborted += 1
        elif what == "steps":
            for _ in range(first):
                step()
        engine.check_invariants()
    for _ in range(200_000):
        if engine.is_idle:
            break
        step()
    assert engine.is_idle
    assert len(finished) + aborted == len(lengths)
    assert len(set(finished)) == len(finished)
    assert engine.kv_used_tokens == 0
    # The step that ends a prefill gives an output token without work of its own.
    useful = sum(p + o - 1 for name, (p, o) in lengths.items() if name in finished)
    assert engine.worked_tokens_total == useful + engine.recomputed_tokens_total + lost_tokens


def test_prefill_when_alone_then_it_takes_chunks_of_the_bound() -> None:
    """A prompt of 40 in chunks of 16 gives its first token in the third step."""
    engine = Engine(SMALL)
    engine.submit("a", prompt_tokens=40, output_tokens=3)
    firsts = [bool(engine.step().first) for _ in range(3)]
    assert firsts == [False, False, True]
    assert [bool(engine.step().finished) for _ in range(2)] == [False, True]


def test_step_when_many_decode_then_they_are_served_before_prefill() -> None:
    """With 4 decoding, a budget of 40 leaves 36 for prompts, in order of entry."""
    engine = Engine(replace(SMALL, chunk_tokens_max=40, kv_tokens=1_000))
    for name in "abcd":
        engine.submit(name, prompt_tokens=10, output_tokens=50)
    engine.step()
    assert engine.decode_tokens_total == 0
    engine.submit("e", prompt_tokens=30, output_tokens=1)
    engine.submit("f", prompt_tokens=30, output_tokens=1)
    result = engine.step()
    assert engine.decode_tokens_total == 4
    assert [s.sequence_id for s in result.finished] == ["e"]
    late = engine.get("f")
    assert late is not None
    assert late.prefilled_tokens == 6


def test_fifo_when_head_does_not_fit_then_nobody_passes_it() -> None:
    """A small request waits behind a large one in fifo and passes it in first_fit."""
    for discipline, entered in (("fifo", 1), ("first_fit", 2)):
        engine = Engine(SMALL, discipline=discipline)
        engine.submit("running", prompt_tokens=80, output_tokens=30)
        engine.step()
        engine.submit("large", prompt_tokens=60, output_tokens=5)
        engine.submit("small", prompt_tokens=5, output_tokens=5)
        engine.step()
        assert engine.running == entered, discipline


def test_decode_when_pool_is_full_then_last_entered_is_preempted_and_done_again() -> None:
    """The newest sequence loses its KV, waits first in line and still ends with its length."""
    engine = Engine(SMALL)
    engine.submit("old", prompt_tokens=50, output_tokens=40)
    engine.submit("new", prompt_tokens=50, output_tokens=40)
    preempted: list[str] = []
    finished: dict[str, int] = {}
    while not engine.is_idle:
        result = engine.step()
        engine.check_invariants()
        preempted += [s.sequence_id for s in result.preempted]
        for sequence in result.finished:
            finished[sequence.sequence_id] = sequence.generated_tokens(step=engine.step_index)
    assert preempted[0] == "new"
    assert "old" not in preempted
    assert finished == {"old": 40, "new": 40}
    assert engine.recomputed_tokens_total > 0
    assert engine.worked_tokens_total > 2 * (50 + 40 - 1)


def test_first_token_when_preempted_after_it_then_it_is_not_told_twice() -> None:
    """TTFT is taken once, however often the request starts again."""
    engine = Engine(SMALL)
    engine.submit("old", prompt_tokens=50, output_tokens=40)
    engine.submit("new", prompt_tokens=50, output_tokens=40)
    firsts: list[str] = []
    while not engine.is_idle:
        firsts += [s.sequence_id for s in engine.step().first]
    assert sorted(firsts) == ["new", "old"]


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.PREFILL, Phase.DECODE])
def test_abort_when_in_any_phase_then_its_kv_is_free(phase: Phase) -> None:
    """An aborted request leaves no KV, no place in line and no later event."""
    engine = Engine(SMALL)
    engine.submit("a", prompt_tokens=20, output_tokens=20)
    steps = {Phase.WAITING: 0, Phase.PREFILL: 1, Phase.DECODE: 4}[phase]
    for _ in range(steps):
        engine.step()
    sequence = engine.get("a")
    assert sequence is not None
    assert sequence.phase is phase
    assert engine.abort("a") is sequence
    engine.check_invariants()
    assert engine.is_idle
    assert engine.kv_used_tokens == engine.waiting_prompt_tokens == 0
    assert engine.abort("a") is None
    for _ in range(30):
        assert not engine.step().finished


@pytest.mark.parametrize(
    ("prompt", "output"), [(0, 1), (1, 0), (-1, 5), (SMALL.kv_tokens, 1), (1, SMALL.kv_tokens)]
)
def test_submit_when_request_could_never_run_then_it_is_refused(prompt: int, output: int) -> None:
    """Lengths below 1 and requests over the pool are a contract error and change nothing."""
    engine = Engine(SMALL)
    with pytest.raises(ContractError):
        engine.submit("a", prompt_tokens=prompt, output_tokens=output)
    assert engine.is_idle


def test_submit_when_id_is_in_the_engine_then_it_is_refused() -> None:
    """Two sequences never share an id."""
    engine = Engine(SMALL)
    engine.submit("a", prompt_tokens=1, output_tokens=5)
    with pytest.raises(ContractError, match="already"):
        engine.submit("a", prompt_tokens=1, output_tokens=5)


def test_engine_when_discipline_is_unknown_then_the_error_lists_them() -> None:
    """The text names what is allowed."""
    with pytest.raises(ConfigError, match="fifo, first_fit"):
        Engine(SMALL, discipline="lifo")


def test_step_when_profile_slows_down_then_its_duration_grows_with_the_work() -> None:
    """Tokens and KV in use lengthen a step; the article's engine is always paced."""
    slowing = Engine(replace(SMALL, token_ns=2.0, kv_token_ns=3.0, sequence_ns=7, attention_ns=0.5))
    slowing.submit("a", prompt_tokens=20, output_tokens=3)
    # Chunks of 16 and 4, whose pairs are 16 x 8 and 4 x (16 + 2); then a token with 21 of context.
    assert slowing.step().duration_ns == 10 + 2 * 16 + 7 + 64
    assert slowing.step().duration_ns == 10 + 2 * 4 + 7 + 36
    assert slowing.step().duration_ns == 10 + 2 * 1 + 7 + 3 * 21
    paced = Engine(profile("article"))
    paced.submit("a", prompt_tokens=512, output_tokens=2)
    assert paced.step().duration_ns == 10_000_000


def test_batch_when_seats_are_taken_then_others_wait() -> None:
    """No more than ``sequences_max`` run at once though the pool has room."""
    engine = Engine(SMALL)
    for number in range(12):
        engine.submit(str(number), prompt_tokens=1, output_tokens=5)
    engine.step()
    assert (engine.running, engine.waiting) == (8, 4)
