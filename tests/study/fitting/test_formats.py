"""Files of measured curves: real ones, and broken ones."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest

from tests.study.fitting.pages import history
from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.traces import bundled
from tokenweir.study.fitting.curves import Reading
from tokenweir.study.fitting.fit import Fit, curve_errors, fit_profile
from tokenweir.study.fitting.formats import Wanted, read_curves

FIXTURES = Path(__file__).parents[2] / "fixtures" / "curves"
SERVED = FIXTURES / "served_totals.csv"
OPERATORS = FIXTURES / "a100_Meta-Llama-3-8B_mlp_medians.csv"
LAYERS = "vllm-overload-runs/layer-profiles"
H100_ROWS = (("system", "h100_sxm"),)


def wanted(**changes: object) -> Wanted:
    """Return what is known of an engine of 2,048 tokens a step."""
    values: dict[str, object] = {
        "step_tokens_max": 2_048,
        "sequences_max": 256,
        "kv_tokens": 41_408,
        **changes,
    }
    return Wanted(**values)  # type: ignore[arg-type]  # by name


def fitted(reading: Reading, *, like: str = "8b-h100") -> Fit:
    """Fit what was read."""
    return fit_profile(reading, like=profile(like), name="found")


def test_prefill_decode_when_read_then_the_shipped_profile_is_their_fit() -> None:
    """The H200 profile is what its curves say, and they tell the size of its pool."""
    engine = profile("8b-fp8-h200")
    paths = [bundled(f"h200-llama8b-fp8-profile/{n}.csv") for n in ("prefill_ttft", "decode_itl")]
    reading = read_curves(
        paths, wanted(step_tokens_max=8_192, sequences_max=1_024, kv_tokens=engine.kv_tokens)
    )
    assert dict(reading.told) == {"kv_tokens": 945_029}
    fit = fit_profile(reading, like=engine, name=engine.name)
    first, decode = fit.errors
    assert (first.points, decode.points) == (17, 41)
    assert first.median < 0.02
    assert first.p90 < 0.08
    assert decode.median < 0.02
    assert decode.p90 < 0.09
    assert first.overhead_ns == pytest.approx(14.6e6, rel=0.02)
    for name in ("step_ns", "token_ns", "kv_token_ns", "compute_token_ns", "attention_ns"):
        assert getattr(fit.profile, name) == pytest.approx(getattr(engine, name), rel=0.01)


def test_layer_timings_when_read_then_decode_and_prefill_are_near() -> None:
    """Kernel timings of an RTX 4090: decode steps within 3 % at p90, prefill 3 % in the median."""
    fit = fitted(read_curves([bundled(LAYERS) / name for name in layer_files("RTX4090")], wanted()))
    errors = {error.name: error for error in fit.errors}
    assert errors["decode"].p90 < 0.04
    assert errors["prefill"].median < 0.03
    assert errors["mixed"].median < 0.10


def layer_files(machine: str) -> list[str]:
    """Return the names of a machine's timings."""
    stem = f"{machine}_Llama-3.1-8B_bf16_tp1"
    return [f"{stem}_{part}.csv.gz" for part in ("attention", "dense", "per_sequence")]


def test_layer_timings_when_a_part_is_missing_or_double_then_says_which() -> None:
    """Three files make a model, no less and no other engine's."""
    folder = bundled(LAYERS)
    paths = [folder / name for name in layer_files("RTX4090")]
    with pytest.raises(ConfigError, match="the file with timings per_sequence is missing"):
        read_curves(paths[:2], wanted())
    with pytest.raises(ConfigError, match=r"RTXPRO6000.* a second file of timings attention"):
        read_curves([*paths, folder / layer_files("RTXPRO6000")[0]], wanted())


def test_operator_tables_when_read_then_agree_with_the_shipped_a100_profile() -> None:
    """A sample of Vidur's rows gives the A100 profile's dense layers within 10 %."""
    reading = read_curves([OPERATORS], wanted(where=(("num_tensor_parallel_workers", "1"),)))
    fit = fitted(reading, like="8b-a100")
    assert fit.borrowed == ("kv_token_ns", "sequence_ns", "attention_ns")
    for tokens in (1, 64, 256, 512):
        ours = fit.profile.duration_ns(tokens=tokens)
        assert ours == pytest.approx(profile("8b-a100").duration_ns(tokens=tokens), rel=0.1)


def test_served_totals_when_means_are_fitted_then_they_are_met() -> None:
    """42 mean paces of an H100 engine, prefill between the decode steps: 1 % in the median."""
    reading = read_curves(
        [SERVED], wanted(where=H100_ROWS, kv_tokens=421_000, step_tokens_max=8_192)
    )
    fit = fitted(reading)
    assert fit.errors[0].points == 42
    assert fit.errors[0].median < 0.015
    assert fit.errors[0].p90 < 0.05


def test_served_totals_when_gaps_are_medians_then_steps_only_decode() -> None:
    """A median gap knows no prefill; the independent H200 rows then lie 20 % beside its profile."""
    engine = profile("8b-fp8-h200")
    reading = read_curves(
        [SERVED],
        Wanted(
            step_tokens_max=engine.step_tokens_max,
            sequences_max=engine.sequences_max,
            kv_tokens=engine.kv_tokens,
            where=(("model_path", "nvidia/Llama-3.1-8B-Instruct-FP8"), ("tp_size", "1")),
            is_median=True,
        ),
    )
    assert all(len(point.steps) == 1 for point in reading.curves[0].points)
    assert curve_errors(reading.curves, engine)[0].median < 0.25


def test_served_totals_when_rows_are_of_several_engines_then_says_how_to_pick() -> None:
    """A column that tells them apart, and its values."""
    with pytest.raises(ConfigError, match="several engines, allowed: --where model_path= one of "):
        read_curves([SERVED], wanted())
    with pytest.raises(ConfigError, match="--where gpu: no such column, allowed: id, backend"):
        read_curves([SERVED], wanted(where=(("gpu", "h100"),)))
    with pytest.raises(ConfigError, match="--where system=b200: no such rows, allowed: h100_sxm"):
        read_curves([SERVED], wanted(where=(("system", "b200"),)))


def test_where_when_files_hold_one_engine_then_is_refused() -> None:
    """A condition that picks nothing would be taken for one that did."""
    curves = bundled("h200-llama8b-fp8-profile/decode_itl.csv")
    with pytest.raises(ConfigError, match="--where tp picks nothing from prefill and decode"):
        read_curves([curves], wanted(where=(("tp", "1"),)))


def test_served_totals_when_none_fits_the_engine_then_says_what_to_change() -> None:
    """Requests in flight that the pool cannot hold measure waiting."""
    with pytest.raises(ConfigError, match="none of 42 rows fits an engine of 256 seats and 100 KV"):
        read_curves([SERVED], wanted(where=H100_ROWS, kv_tokens=100))


@pytest.mark.parametrize("as_folder", [True, False])
def test_metrics_history_when_an_engine_ran_then_its_steps_are_found(
    as_folder: bool, tmp_path: Path
) -> None:
    """Pages of an engine whose load rises and falls give its decode step times within 5 %."""
    engine = profile("8b-h100")
    pages = history(engine, seed=3)
    if as_folder:
        for index, page in enumerate(pages):
            (tmp_path / f"{index:04}.txt").write_text(page)
        (tmp_path / "9999.txt").write_text("")
        reading = read_curves([tmp_path], wanted())
    else:
        (tmp_path / "all.txt").write_text("# EOF\n".join(pages))
        reading = read_curves([tmp_path / "all.txt"], wanted())
    assert dict(reading.told) == {"kv_tokens": engine.kv_tokens // 16 * 16}
    fit = fitted(reading, like="8b-a100")
    assert fit.errors[0].median < 0.01
    for batch in (8, 64, 128):
        numbers = {"tokens": batch, "kv_tokens": batch * 700, "sequences": batch}
        assert fit.profile.duration_ns(**numbers) == pytest.approx(
            engine.duration_ns(**numbers), rel=0.05
        )


def test_metrics_history_when_pages_say_too_little_then_is_refused(tmp_path: Path) -> None:
    """A restart, an idle engine and a preemption leave nothing to fit."""
    (tmp_path / "a.txt").write_text(history(profile("8b-a100"), seed=3)[0])
    with pytest.raises(ConfigError, match="1 pages hold 0 intervals that can be used"):
        read_curves([tmp_path], wanted())


@pytest.mark.parametrize("older", [False, True])
def test_metrics_history_when_pages_are_vllm_s_own_then_an_interval_is_read(
    older: bool, tmp_path: Path
) -> None:
    """895 steps with 14,150 output tokens and 43,462 of prefill, gaps of 53.5 ms in the mean."""
    wire = Path(__file__).parents[2] / "fixtures" / "wire"
    for index, name in enumerate(("idle", "overloaded") * 3):
        text = (wire / f"metrics_{name}.txt").read_text()
        # Its preemptions would rule the interval out.
        text = re.sub(r"^(vllm:num_preemptions_total\S*) .*", r"\1 0.0", text, flags=re.MULTILINE)
        if older:
            text = text.replace("inter_token_latency_seconds", "time_per_output_token_seconds")
        (tmp_path / f"{index}.txt").write_text(text)
    curve = read_curves([tmp_path], wanted()).curves[0]
    # Each time the counters fall back to 0 is a restart.
    assert len(curve.points) == 3
    point = curve.points[0]
    assert point.value_ns == pytest.approx(53.46e6, rel=1e-3)
    assert sum(s.share for s in point.steps) == pytest.approx(1.0)
    assert sum(s.share * s.tokens for s in point.steps) == pytest.approx((14_045 + 43_462) / 895)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "a,b\n1,2\n", "what it holds is not known, allowed: prefill and decode curves"),
        ("x.csv", "", "what it holds is not known"),
        ("x.csv", "isl_tokens,ttft_ms\n", "no rows in it"),
        ("x.csv", "isl_tokens,ttft_ms\n1\n", "line 2: 1 values, expected 2"),
        ("x.csv", "isl_tokens,ttft_ms\n1,fast\n", "line 2: ttft_ms 'fast' is not allowed"),
        ("x.csv", "isl_tokens,ttft_ms\n1,nan\n", "line 2: ttft_ms 'nan' is not allowed"),
        ("x.csv", "isl_tokens,ttft_ms\n-1,5\n", "isl_tokens -1 is not allowed, allowed: above 0"),
        ("x.csv.gz", "isl_tokens,ttft_ms\n1,2\n", "cannot be read"),
    ],
    ids=range(8),
)
def test_file_when_broken_then_one_line_says_where(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    """File, line, what was found and what was expected."""
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_curves([tmp_path / name], wanted())
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_file_when_missing_or_a_folder_is_empty_then_says_so(tmp_path: Path) -> None:
    """Nothing to read is a mistake too."""
    with pytest.raises(ConfigError, match=r"nothing\.csv: cannot be read: No such file"):
        read_curves([tmp_path / "nothing.csv"], wanted())
    with pytest.raises(ConfigError, match="no data files in it, allowed: a folder with some"):
        read_curves([tmp_path], wanted())


def test_file_when_layers_are_unknown_then_asks_for_them(tmp_path: Path) -> None:
    """The number of layers stands in no table; a known model's name tells it."""
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(OPERATORS.read_bytes()))
    where = (("num_tensor_parallel_workers", "1"),)
    with pytest.raises(ConfigError, match="names no known model, allowed: --layers N"):
        read_curves([path], wanted(where=where))
    assert read_curves([path], wanted(where=where, layers=32)).curves


def test_file_when_garbage_then_never_fails_in_another_way(tmp_path: Path) -> None:
    """Truncated and garbled files are read, or end in one of our own errors, in one line."""
    rng, said = random.Random(11), []
    for source in (SERVED, OPERATORS, bundled("h200-llama8b-fp8-profile/decode_itl.csv")):
        raw = bytearray(source.read_bytes())
        for _ in range(15):
            garbled = bytearray(raw[: rng.randrange(1, len(raw))])
            for _ in range(5):
                garbled[rng.randrange(len(garbled))] = rng.randrange(256)
            path = tmp_path / source.name
            path.write_bytes(garbled)
            try:
                read_curves([path], wanted())
            except ConfigError as error:
                said.append(str(error))
    assert said
    assert not [text for text in said if "\n" in text]


SERVED_REQUESTS = "vtc-arena/measured_a10g.csv.gz"


def test_served_requests_when_read_then_the_shipped_profile_is_their_fit() -> None:
    """The A10G profile is what the first-come rows say, and no other rows are asked."""
    engine = profile("7b-a10g")
    known = wanted(kv_tokens=10_000, where=(("policy", "fcfs"),))
    fit = fit_profile(read_curves([bundled(SERVED_REQUESTS)], known), like=engine, name="found")
    (pace,) = fit.errors
    assert pace.points == 1_327
    assert pace.median < 0.012
    assert pace.p90 < 0.04
    for name in ("step_ns", "token_ns", "kv_token_ns", "compute_step_ns", "compute_token_ns"):
        assert getattr(fit.profile, name) == pytest.approx(getattr(engine, name), rel=1e-3)


def test_served_requests_when_an_engine_is_known_then_its_terms_come_back(tmp_path: Path) -> None:
    """Of requests that ran side by side at a pace of 20 ms + 1 us a context token."""
    chance, rows, now_s = random.Random(3), [], 0.0
    for _ in range(60):
        # Batches one after the other: all of a batch run together, at the pace of its middle.
        size, prompt, output = chance.randint(1, 40), chance.randint(10, 900), 101
        pace_s = 0.020 + size * (prompt + 1 + 50) * 1e-6
        end_s = 0.1 + 100 * pace_s
        rows += [f"{now_s},{prompt},{output},0.1,{end_s:.9f}"] * size
        now_s += end_s + 1.0
    path = tmp_path / "requests.csv"
    header = "arrival_s,prompt_tokens,output_tokens,first_token_latency_s,request_latency_s"
    path.write_text("\n".join([header, *rows]))
    fit = fitted(read_curves([path], wanted()))
    assert fit.profile.step_ns == pytest.approx(20e6, rel=0.01)
    assert fit.profile.kv_token_ns == pytest.approx(1_000.0, rel=0.01)
    assert fit.errors[0].p90 < 0.001


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["0,10,50,0.1,2.0"] * 9, "9 of 9 requests were served"),
        (["0,10,50,-1,-1"] * 20, "0 of 20 requests were served"),
        (["0,10,20,0.1,2.0"] * 20, "0 of 20 requests were served"),
        (["0,10,50,0.5,0.4"] * 20, r"line 2: request_latency_s 0\.4 is not allowed"),
        (["0,10,50,0.5,x"] * 20, "line 2: request_latency_s 'x'"),
        (["0,10,50,0.5,2.0"] * 10_001, "10,001 served requests are not allowed"),
    ],
)
def test_served_requests_when_they_say_too_little_then_one_line_says_why(
    rows: list[str], expected: str, tmp_path: Path
) -> None:
    """Short answers, refusals and impossible times are no paces."""
    path = tmp_path / "requests.csv"
    header = "arrival_s,prompt_tokens,output_tokens,first_token_latency_s,request_latency_s"
    path.write_text("\n".join([header, *rows]))
    with pytest.raises(ConfigError, match=expected):
        read_curves([path], wanted())


def test_served_requests_when_of_several_runs_then_asks_which() -> None:
    """Rows of two schedulers are two runs, and two files are two as well."""
    path = bundled(SERVED_REQUESTS)
    with pytest.raises(ConfigError, match="--where policy= one of fcfs, vtc"):
        read_curves([path], wanted())
    with pytest.raises(ConfigError, match="2 files of served requests"):
        read_curves([path, path], wanted(where=(("policy", "fcfs"),)))
