"""What the demo says about its two sides."""

from typing import Any

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.study.demo.report import next_steps, preface, verdict
from tokenweir.study.demo.setup import DemoSetup

SETUP = DemoSetup()


def side(*, goodput: float, p99_s: float = 0.5, is_void: bool = False) -> dict[str, Any]:
    """Return the figures of a side that the verdict reads."""
    return {
        "goodput_unique": goodput,
        "ttft_p99_s": p99_s,
        "is_void": is_void,
        "is_complete": True,
    }


def test_verdict_when_both_sides_ran_then_it_states_ratio_slo_and_ledger() -> None:
    """The claims of the demo stand in three lines with their numbers."""
    document = {"without": side(goodput=0.02), "with": side(goodput=0.2), "ledger_after": 0}
    ratio, slo, ledger = verdict(document, SETUP)
    assert "10.0 x that without" in ratio
    assert "0.500 s, within the SLO of 1 s" in slo
    assert ledger == "ledger after the run: 0 tokens reserved or draining"


def test_verdict_when_the_slo_is_missed_then_it_says_so() -> None:
    """A missed SLO is not hidden."""
    document = {
        "without": side(goodput=0.0),
        "with": side(goodput=0.2, p99_s=1.2),
        "ledger_after": 0,
    }
    lines = verdict(document, SETUP)
    assert "without none at all" in lines[0]
    assert "NOT within" in lines[1]


def test_verdict_when_a_process_was_short_of_cpu_then_the_run_is_void() -> None:
    """A side whose processes were saturated does not count."""
    document = {
        "without": side(goodput=0.1),
        "with": side(goodput=0.2, is_void=True),
        "ledger_after": 0,
    }
    assert verdict(document, SETUP)[0].startswith("VOID: a process of the side 'with'")


def test_verdict_when_a_side_did_not_run_then_it_claims_nothing() -> None:
    """After an interruption nothing is compared."""
    document = {"without": side(goodput=0.1), "ledger_after": 0}
    assert verdict(document, SETUP) == ["interrupted: only what had been sent until then"]


def test_preface_when_printed_then_it_tells_scale_load_and_capacity() -> None:
    """What was scaled and how much load that is comes before any figure."""
    capacity_rps, rate_rps = SETUP.rates_rps()
    text = preface(SETUP, capacity_rps=capacity_rps, rate_rps=rate_rps)
    assert "lengths scaled down to 0.25" in text
    assert f"{rate_rps:.1f} requests/s = 3 x capacity" in text
    assert rate_rps == pytest.approx(3 * capacity_rps)
    assert SETUP.profile.tokens_per_s <= 3_000


def test_next_steps_when_printed_then_they_name_the_commands() -> None:
    """By hand, and in front of a real engine."""
    text = next_steps()
    assert "curl -N http://127.0.0.1:8080/v1/chat/completions" in text
    assert "tokenweir serve --upstream http://" in text


@pytest.mark.parametrize("seconds", [0.0, 4.9, 601.0, float("nan")])
def test_setup_when_the_time_is_out_of_range_then_it_is_refused(seconds: float) -> None:
    """A side needs some seconds and has a limit."""
    with pytest.raises(ConfigError, match="allowed: 5 to 600"):
        DemoSetup(seconds=seconds)
