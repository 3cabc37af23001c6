"""The simulator beside measured runs of real engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.traces import bundled
from tokenweir.study.reality.check import deviations, simulated
from tokenweir.study.reality.protocol import reality
from tokenweir.study.reality.runs import read_run

RUN = "vllm-overload-runs/RTX4090_Llama-3.1-8B"
REQUEST = {
    "input_toks": 100,
    "output_toks": 10,
    "queued_ts": 5.0,
    "first_token_ts": 5.5,
    "last_token_ts": 6.4,
}
SECONDS = "t,running,waiting\n1.0,1,0\n2.0,1,3\n"


def written(folder: Path, requests: str, seconds: str = SECONDS) -> Path:
    """Write a run and return its folder."""
    (folder / "requests.jsonl").write_text(requests)
    (folder / "timeseries.csv").write_text(seconds)
    return folder


def test_reality_when_gone_through_then_everything_promised_is_met() -> None:
    """Kernel timings and one constant of another machine foresee an overload nobody fitted."""
    found = reality()
    assert found.is_met
    by_name = {deviation.name: deviation for deviation in found.tested}
    for name in ("most waiting", "drained after, s", "TTFT p50, s"):
        assert abs(by_name[name].fraction or 0.0) <= 0.15
        assert by_name[name].is_met
    assert 1e6 < found.overhead_ns < 4e6
    assert found.values.points == 41
    assert found.values.median < 0.03
    assert found.values.p90 < 0.10
    # Whole contexts left out are extrapolation, which the model does not promise.
    assert found.contexts.median < 0.05
    assert found.contexts.p90 > 0.10


def test_run_when_read_then_figures_are_those_its_readme_states() -> None:
    """TTFT 60.1 / 121.1 / 137.4 s, TPOT 30.8 / 56.0 ms, 49 running, 234 waiting, 183.6 s."""
    run = read_run(bundled(RUN))
    assert len(run.arrivals) == 300
    assert run.arrivals[0].arrival_ns == 0
    figures = run.figures
    assert figures.ttft_s == pytest.approx((60.1, 121.1, 137.4), abs=0.06)
    assert figures.tpot_ms == pytest.approx((30.8, 56.0), abs=0.06)
    assert (figures.running_max, figures.waiting_max) == (49, 234)
    assert figures.drain_s == pytest.approx(183.6, abs=0.05)


def test_check_when_profile_is_of_another_machine_then_is_not_met() -> None:
    """An H100 never lets that load wait, and the table says so."""
    run = read_run(bundled(RUN))
    figures, _ = simulated(run, profile("8b-h100"))
    rows = deviations(run.figures, figures, allowed=0.15)
    assert [row.is_met for row in rows[:3]] == [False, False, False]
    assert all(row.is_met is None for row in rows[3:])


def test_check_when_a_request_cannot_fit_then_says_which_is_too_small() -> None:
    """The demo's pool is smaller than one of these requests."""
    with pytest.raises(ConfigError, match=r"request of [0-9,]+ tokens, profile vllm-cpu-small"):
        simulated(read_run(bundled(RUN)), profile("vllm-cpu-small"))


def test_run_when_measured_figures_are_small_then_still_makes_sense(tmp_path: Path) -> None:
    """One request with one gap length; nothing divides by zero."""
    run = read_run(written(tmp_path, json.dumps(REQUEST)))
    assert run.figures.ttft_s == (0.5, 0.5, 0.5)
    assert run.figures.tpot_ms == pytest.approx((100.0, 100.0))
    one = {**REQUEST, "output_toks": 1}
    assert read_run(written(tmp_path, json.dumps(one))).figures.tpot_ms == (0.0, 0.0)


@pytest.mark.parametrize(
    ("requests", "seconds", "message"),
    [
        ("", SECONDS, "no requests in it"),
        ("{", SECONDS, "line 1: not a served request, expected JSON with input_toks"),
        ("7", SECONDS, "line 1: not a served request"),
        (json.dumps({**REQUEST, "output_toks": 0}), SECONDS, "line 1: not a served request"),
        (json.dumps({**REQUEST, "first_token_ts": 9}), SECONDS, "line 1: not a served request"),
        (json.dumps({**REQUEST, "queued_ts": None}), SECONDS, "line 1: not a served request"),
        (json.dumps(REQUEST), "t,running\n1,2\n", "waiting '' is not allowed"),
    ],
    ids=range(7),
)
def test_run_when_broken_then_one_line_says_where(
    requests: str, seconds: str, message: str, tmp_path: Path
) -> None:
    """File, line and what was expected."""
    with pytest.raises(ConfigError, match=message) as raised:
        read_run(written(tmp_path, requests, seconds))
    assert "\n" not in str(raised.value)


def test_run_when_a_file_is_missing_then_says_which(tmp_path: Path) -> None:
    """A folder that is no run."""
    with pytest.raises(ConfigError, match=r"requests\.jsonl is missing, allowed: a folder that"):
        read_run(tmp_path)
