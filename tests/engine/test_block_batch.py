"""The engine model in blocks: rounding, chunks, the prefix cache, preemption, conservation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.prefix import Prefix
from tokenweir.core.profile import EngineProfile
from tokenweir.engine.batch import DISCIPLINES, Engine
from tokenweir.engine.block_batch import BlockEngine, BlockSequence
from tokenweir.engine.sequence import Phase

SMALL = EngineProfile(
    name="small",
    source="made up for these tests",
    step_ns=10,
    step_tokens_max=40,
    chunk_tokens_max=16,
    kv_tokens=120,
    sequences_max=8,
    kv_block_tokens=4,
)
# 100 blocks of 4, which leave nobody waiting for KV.
ROOMY = replace(SMALL, kv_tokens=400)


def _prefix(*ids: int) -> Prefix:
    """Return a prefix of blocks of 8 tokens, two KV blocks each."""
    return Prefix(8, ids)


def _run_out(engine: Engine, *, steps_max: int = 100_000) -> None:
    for _ in range(steps_max):
        if engine.is_idle:
            return
        engine.step()
        engine.check_invariants()
    raise AssertionError("the engine never gets through")


def _sequence(engine: BlockEngine, name: str) -> BlockSequence:
    sequence = engine.get(name)
    assert isinstance(sequence, BlockSequence)
    return sequence


def test_kv_when_a_prompt_is_read_in_chunks_then_blocks_are_taken_with_them() -> None:
    """16, 32 and 37 tokens take 4, 8 and 10 blocks of 4; output takes one every fourth token."""
    engine = BlockEngine(ROOMY)
    engine.submit("a", prompt_tokens=37, output_tokens=9)
    used = []
    while not engine.is_idle:
        engine.step()
        engine.check_invariants()
        used.append(engine.kv_used_tokens)
    # The third step ends the prompt and gives the first token, whose KV comes with the next one.
    assert used == [16, 32, 40, 40, 40, 40, 44, 44, 44, 44, 0]


def test_prefix_when_it_is_cached_then_only_the_rest_is_read() -> None:
    """Of 20 tokens the two blocks of 8 that another prompt shares are not read again."""
    engine = BlockEngine(ROOMY)
    engine.submit("a", prompt_tokens=20, output_tokens=2, prefix=_prefix(1, 2, 3))
    _run_out(engine)
    assert (engine.prefill_tokens_total, engine.cached_blocks) == (20, 4)
    engine.submit("b", prompt_tokens=20, output_tokens=2, prefix=_prefix(1, 2, 4))
    engine.step()
    assert engine.prefill_tokens_total == 24
    assert engine.spared_tokens_total == _sequence(engine, "b").spared_tokens == 16
    assert engine.entered_prompt_tokens_total == 40
    _run_out(engine)
    # What was found counts once, and nothing of it was work done again.
    assert (engine.spared_tokens_total, engine.recomputed_tokens_total) == (16, 0)


def test_prefix_when_all_of_the_prompt_is_cached_then_its_last_block_is_read() -> None:
    """A prompt of two whole blocks reads the second again, since its first token comes from it."""
    engine = BlockEngine(ROOMY)
    for name in "ab":
        engine.submit(name, prompt_tokens=16, output_tokens=2, prefix=_prefix(1, 2))
        _run_out(engine)
    assert (engine.prefill_tokens_total, engine.spared_tokens_total) == (24, 8)


def test_prefix_when_two_read_it_at_the_same_time_then_the_second_finds_the_first_chunk() -> None:
    """What the first reads in a step is cached in it, so the second is spared that much."""
    engine = BlockEngine(ROOMY)
    for name in "ab":
        engine.submit(name, prompt_tokens=36, output_tokens=4, prefix=_prefix(1, 2, 3, 4))
    engine.step()
    assert _sequence(engine, "b").spared_tokens == 16
    assert engine.prefill_tokens_total == 32
    engine.step()
    # They have 32 and 36 tokens now: the four runs are held once, whoever read them.
    assert engine.kv_used_tokens == 36
    _run_out(engine)
    assert engine.kv_used_tokens == 0


def test_prefix_when_there_is_no_cache_then_it_changes_nothing() -> None:
    """Without a prefix cache every prompt is read in full and nothing stays."""
    engine = BlockEngine(ROOMY, has_prefix_cache=False)
    for name in "ab":
        engine.submit(name, prompt_tokens=20, output_tokens=2, prefix=_prefix(1, 2))
        _run_out(engine)
    assert (engine.prefill_tokens_total, engine.spared_tokens_total) == (40, 0)
    assert engine.cached_blocks == 0


def test_prefix_when_blocks_are_short_then_idle_ones_are_evicted() -> None:
    """A prompt that needs the whole pool evicts what nobody holds, from the end."""
    engine = BlockEngine(replace(SMALL, kv_tokens=40))
    engine.submit("a", prompt_tokens=17, output_tokens=1, prefix=_prefix(1, 2))
    _run_out(engine)
    engine.submit("b", prompt_tokens=26, output_tokens=1)
    _run_out(engine)
    assert engine.cached_blocks == 2
    engine.submit("c", prompt_tokens=17, output_tokens=1, prefix=_prefix(1, 2))
    _run_out(engine)
    assert engine.spared_tokens_total == 8


def test_decode_when_pool_is_full_then_the_last_is_preempted_and_finds_its_prompt() -> None:
    """Of two that fill the pool the newer is preempted; only what the cache lost is redone."""
    works = {}
    for has_cache in (False, True):
        engine = BlockEngine(SMALL, has_prefix_cache=has_cache)
        engine.submit("old", prompt_tokens=49, output_tokens=40, prefix=_prefix(*range(1, 7)))
        engine.submit("new", prompt_tokens=49, output_tokens=40, prefix=_prefix(*range(11, 17)))
        preempted: list[str] = []
        while not engine.is_idle:
            preempted += [s.sequence_id for s in engine.step().preempted]
            engine.check_invariants()
        assert set(preempted) == {"new"}
        assert engine.worked_tokens_total == (
            2 * (49 + 40 - 1) + engine.recomputed_tokens_total - engine.spared_tokens_total
        )
        # Its own prompt was read once already: to find it again is no saving, only no recompute.
        assert engine.spared_tokens_total == 0
        works[has_cache] = engine.recomputed_tokens_total
    assert 0 < works[True] < works[False]


def test_enter_when_a_prompt_does_not_fit_as_a_whole_then_it_waits() -> None:
    """The first chunk of 60 tokens would fit into 40 free ones, the prompt would not."""
    engine = BlockEngine(SMALL)
    engine.submit("a", prompt_tokens=80, output_tokens=20)
    for _ in range(5):
        engine.step()
    assert engine.kv_used_tokens == 80
    engine.submit("b", prompt_tokens=60, output_tokens=5)
    engine.step()
    assert (engine.running, engine.waiting) == (1, 1)
    _run_out(engine)
    assert engine.preemptions_total == 0


def test_first_fit_when_head_does_not_fit_then_a_smaller_one_passes() -> None:
    """In fifo nobody passes; a head whose prefix is held needs less, and passes in both."""
    for discipline, running in (("fifo", 1), ("first_fit", 2)):
        engine = BlockEngine(SMALL, discipline=discipline)
        engine.submit("a", prompt_tokens=80, output_tokens=30, prefix=_prefix(*range(10)))
        for _ in range(5):
            engine.step()
        engine.submit("large", prompt_tokens=60, output_tokens=5)
        engine.submit("small", prompt_tokens=5, output_tokens=5)
        engine.step()
        assert engine.running == running, discipline
        engine.abort("large")
        engine.submit("like a", prompt_tokens=81, output_tokens=3, prefix=_prefix(*range(10)))
        engine.step()
        assert _sequence(engine, "like a").spared_tokens == 80


def test_read_on_when_blocks_are_short_then_the_newest_prompt_goes_back() -> None:
    """Two prompts that fit one by one but not together: the second waits until it fits."""
    engine = BlockEngine(replace(SMALL, kv_tokens=80, step_tokens_max=32))
    engine.submit("a", prompt_tokens=48, output_tokens=3)
    engine.submit("b", prompt_tokens=48, output_tokens=3)
    results = [engine.step() for _ in range(3)]
    assert [s.sequence_id for r in results for s in r.preempted] == ["b"]
    assert engine.preemptions_total == 1
    _run_out(engine)
    # Its two chunks of 16 were read twice.
    assert engine.recomputed_tokens_total == 32


def test_step_when_it_preempts_then_nobody_enters_in_it() -> None:
    """Else what was just freed would be taken by the next, to be taken away again."""
    engine = BlockEngine(replace(SMALL, kv_tokens=40))
    engine.submit("a", prompt_tokens=16, output_tokens=20)
    engine.submit("b", prompt_tokens=16, output_tokens=20)
    while not engine.step().preempted:
        pass
    assert (engine.running, engine.waiting) == (1, 1)


def test_blocks_when_pool_is_ample_then_it_runs_as_the_engine_of_whole_prompts() -> None:
    """Where KV is no matter, blocks change neither time nor order."""
    profile = replace(
        ROOMY, kv_tokens=100_000, step_tokens_max=400, token_ns=2.0, kv_token_ns=3.0, sequence_ns=7
    )
    courses = []
    for engine in (Engine(profile), BlockEngine(profile)):
        course = []
        for number in range(30):
            engine.submit(str(number), prompt_tokens=5 + 7 * number % 50, output_tokens=1 + number)
            result = engine.step()
            course.append((
                result.duration_ns,
                [s.sequence_id for s in result.first],
                [s.sequence_id for s in result.finished],
            ))
        courses.append(course)
    assert courses[0] == courses[1]


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.PREFILL, Phase.DECODE])
def test_abort_when_in_any_phase_then_its_blocks_are_free(phase: Phase) -> None:
    """An aborted request holds nothing; what of its prompt was read stays to be found."""
    engine = BlockEngine(ROOMY)
    engine.submit("a", prompt_tokens=20, output_tokens=20, prefix=_prefix(1, 2))
    for _ in range({Phase.WAITING: 0, Phase.PREFILL: 1, Phase.DECODE: 4}[phase]):
        engine.step()
    assert _sequence(engine, "a").phase is phase
    engine.abort("a")
    engine.check_invariants()
    assert engine.kv_used_tokens == 0
    assert engine.cached_blocks == (0 if phase is Phase.WAITING else 4)


def test_submit_when_request_is_wrong_then_it_is_refused() -> None:
    """Over the pool in blocks, an id twice, and prefix blocks that cut KV blocks."""
    engine = BlockEngine(replace(SMALL, kv_tokens=119))
    assert not engine.can_ever_run(prompt_tokens=100, output_tokens=17)
    with pytest.raises(ContractError, match="needs 117"):
        engine.submit("a", prompt_tokens=100, output_tokens=17)
    with pytest.raises(ConfigError, match="multiple of the 4"):
        engine.submit("a", prompt_tokens=20, output_tokens=2, prefix=Prefix(6, (1, 2)))
    engine.submit("a", prompt_tokens=100, output_tokens=16)
    with pytest.raises(ContractError, match="already"):
        engine.submit("a", prompt_tokens=1, output_tokens=1)


def test_check_when_a_sum_is_wrong_then_it_is_an_invariant_error() -> None:
    """A context that does not add up is told."""
    engine = BlockEngine(ROOMY)
    engine.submit("a", prompt_tokens=10, output_tokens=5)
    engine.step()
    engine.kv_used_tokens += 4
    with pytest.raises(InvariantError, match="KV used"):
        engine.check_invariants()


_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 70), st.integers(1, 50), st.integers(0, 2)),
        st.tuples(st.just("abort"), st.integers(0, 1_000), st.just(0), st.just(0)),
        st.tuples(st.just("steps"), st.integers(1, 12), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("discipline", DISCIPLINES)
@pytest.mark.case("CASE-F8")
@given(actions=_ACTIONS)
@settings(max_examples=120, deadline=None)
def test_blocks_when_anything_happens_then_they_are_conserved(
    discipline: str, actions: list[tuple[str, int, int, int]]
) -> None:
    """Blocks add up after every step, each request ends once, and so does the work."""
    engine = BlockEngine(SMALL, discipline=discipline)
    lengths: dict[str, tuple[int, int]] = {}
    finished: dict[str, BlockSequence] = {}
    live: list[str] = []
    lost_tokens = aborted_spared_tokens = 0

    def step() -> None:
        for sequence in engine.step().finished:
            assert isinstance(sequence, BlockSequence)
            assert sequence.sequence_id not in finished
            finished[sequence.sequence_id] = sequence
            live.remove(sequence.sequence_id)
        engine.check_invariants()
        assert engine.kv_used_tokens + 4 * engine.cached_blocks <= SMALL.kv_tokens

    for what, first, second, family in actions:
        if what == "submit" and engine.can_ever_run(prompt_tokens=first, output_tokens=second):
            name = f"s{len(lengths)}"
            lengths[name] = (first, second)
            live.append(name)
            # Families share their first two blocks, and members of one all of them.
            ids = (1, 2, *(10 * family + i for i in range(3, 9)))
            engine.submit(name, prompt_tokens=first, output_tokens=second, prefix=_prefix(*ids))
        elif what == "abort" and live:
            sequence = _sequence(engine, live.pop(first % len(live)))
            held = sequence.kv_tokens(step=engine.step_index)
            lost_tokens += max(held, sequence.covered_tokens)
            aborted_spared_tokens += sequence.spared_tokens
            engine.abort(sequence.sequence_id)
        elif what == "steps":
            for _ in range(first):
                step()
        engine.check_invariants()
    for _ in range(200_000):
        if engine.is_idle:
            break
        step()
    assert engine.is_idle
    assert engine.kv_used_tokens == 0
    for name, sequence in finished.items():
        assert sequence.generated_tokens(step=engine.step_index) == lengths[name][1]
    useful = sum(p + o - 1 for name, (p, o) in lengths.items() if name in finished)
    assert engine.worked_tokens_total == (
        useful
        + engine.recomputed_tokens_total
        + lost_tokens
        - aborted_spared_tokens
        - sum(s.spared_tokens for s in finished.values())
    )
    assert engine.spared_tokens_total == aborted_spared_tokens + sum(
        s.spared_tokens for s in finished.values()
    )
