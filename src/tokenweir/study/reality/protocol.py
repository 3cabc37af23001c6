"""Is the simulator near enough to reality, by measurements that no profile was fitted to?

Rule:
1. A profile of a first machine from its kernel timings; one constant, what the CPU adds to a step,
   so that the first machine's run drains when it did.
2. A profile of a second machine from its own kernel timings and that constant; its run, to which
   nothing was fitted, within 15 % in waiting peak, drain time and median TTFT.
3. The decode curve of a third: every fifth value is left out, the rest fitted and compared with
   what was left out, five times: nine values in ten within 10 %. Beside it, promised by nobody:
   the same with a whole context length left out, which is extrapolation at both ends.
Source: runs and timings are measurements of vLLM 0.19 by LLMServingSim, the curves are NVIDIA
Dynamo's; see the READMEs in ``data/``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.profiles import profile
from tokenweir.sim.traces import bundled
from tokenweir.study.fitting.curves import Curve, Measured, Reading, predicted_ns
from tokenweir.study.fitting.fit import CurveError, error_of, fit_profile, with_step_overhead
from tokenweir.study.fitting.formats import Wanted, read_curves
from tokenweir.study.reality.check import Deviation, deviations, overhead_for, simulated
from tokenweir.study.reality.runs import read_run

__all__ = ["CURVE_ALLOWED", "FITTED", "TESTED", "Machine", "Reality", "kernel_profile", "reality"]

RUN_ALLOWED = 0.15
CURVE_ALLOWED = 0.10
_DATA = "vllm-overload-runs"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with kernel timings and a run.

    Attributes:
        run: Its folder.
        timings: What the names of its timings begin with.
        kv_tokens: Of its pool, as its run recorded it.
        sequences_max: As it was started.
    """

    run: str
    timings: str
    kv_tokens: int
    sequences_max: int


# Its pool was not recorded; what it ever held is far less than this.
FITTED = Machine(
    "RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Llama-3.1-8B_bf16_tp1", 500_000, sequences_max=128
)
TESTED = Machine("RTX4090_Llama-3.1-8B", "RTX4090_Llama-3.1-8B_bf16_tp1", 41_408, sequences_max=256)
_STEP_TOKENS_MAX = 2_048
_CURVES = ("prefill_ttft.csv", "decode_itl.csv")
_FOLDS = 5
_CURVES_FOLDER = "h200-llama8b-fp8-profile"


@dataclass(frozen=True, slots=True)
class Reality:
    """What came out.

    Attributes:
        overhead_ns: What the CPU adds to a step, from the first machine.
        fitted: Figures of the first machine's run.
        tested: Figures of the second machine's run.
        preemptions: Simulated in it.
        values: Of the third's decode curve, a fifth of it left out in turn.
        contexts: Of the same, a context length left out in turn.
    """

    overhead_ns: Nanos
    fitted: tuple[Deviation, ...]
    tested: tuple[Deviation, ...]
    preemptions: int
    values: CurveError
    contexts: CurveError

    @property
    def is_met(self) -> bool:
        """Whether everything that was promised holds."""
        runs = all(deviation.is_met is not False for deviation in self.tested)
        return runs and self.values.p90 <= CURVE_ALLOWED


def reality(*, on_stage: Callable[[], None] = lambda: None) -> Reality:
    """Go through the rule; ``on_stage`` is called after each of its three parts."""
    first = kernel_profile(FITTED)
    run = read_run(bundled(f"{_DATA}/{FITTED.run}"))
    overhead_ns = overhead_for(run, first)
    figures, _ = simulated(run, with_step_overhead(first, overhead_ns))
    fitted = deviations(run.figures, figures, allowed=RUN_ALLOWED)
    on_stage()
    run = read_run(bundled(f"{_DATA}/{TESTED.run}"))
    figures, record = simulated(run, with_step_overhead(kernel_profile(TESTED), overhead_ns))
    tested = deviations(run.figures, figures, allowed=RUN_ALLOWED)
    on_stage()
    third = profile("8b-fp8-h200")
    values = held_out(
        _CURVES_FOLDER, like=third, fold_of=lambda index, _: index % _FOLDS, name="values left out"
    )
    contexts = held_out(
        _CURVES_FOLDER, like=third, fold_of=lambda _, p: _context(p), name="contexts left out"
    )
    on_stage()
    return Reality(overhead_ns, fitted, tested, record.preemptions, values, contexts)


def kernel_profile(machine: Machine) -> EngineProfile:
    """Return a machine's profile from its kernel timings alone."""
    sized = dataclasses.replace(
        profile("8b-h100"),
        kv_tokens=machine.kv_tokens,
        sequences_max=machine.sequences_max,
        step_tokens_max=_STEP_TOKENS_MAX,
        chunk_tokens_max=_STEP_TOKENS_MAX,
    )
    parts = ("attention", "dense", "per_sequence")
    paths = [bundled(f"{_DATA}/layer-profiles/{machine.timings}_{part}.csv.gz") for part in parts]
    reading = read_curves(paths, wanted_of(sized))
    return fit_profile(reading, like=sized, name=machine.run).profile


def wanted_of(engine: EngineProfile) -> Wanted:
    """Return what readers have to know of an engine."""
    return Wanted(
        step_tokens_max=engine.step_tokens_max,
        sequences_max=engine.sequences_max,
        kv_tokens=engine.kv_tokens,
    )


def held_out(
    folder: str, *, like: EngineProfile, fold_of: Callable[[int, Measured], int], name: str
) -> CurveError:
    """Compare decode paces with profiles that were fitted without them.

    Args:
        folder: Of prefill and decode curves, below data/.
        like: Gives the sizes.
        fold_of: Values of the same fold, by index and value, are left out together.
        name: Of the result.
    """
    reading = read_curves([bundled(f"{folder}/{file}") for file in _CURVES], wanted_of(like))
    prefill, decode = reading.curves
    folds = [fold_of(index, point) for index, point in enumerate(decode.points)]
    apart: list[float] = []
    for out in sorted(set(folds)):
        pairs = list(zip(decode.points, folds, strict=True))
        inside = Curve(decode.name, tuple(point for point, fold in pairs if fold != out))
        rest = Reading((prefill, inside), source=reading.source)
        fitted = fit_profile(rest, like=like, name="rest").profile
        apart.extend(
            predicted_ns(point, fitted) / point.value_ns - 1.0
            for point, fold in pairs
            if fold == out
        )
    return error_of(name, apart)


def _context(point: Measured) -> int:
    step = point.steps[0]
    return round(step.kv_tokens / step.sequences)
