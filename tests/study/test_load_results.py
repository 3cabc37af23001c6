"""The figures of a load."""

from tests.contract import ROW_FIGURES
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.sim.results import Slo
from tokenweir.study.load.attempt import Fate, LoadAttempt
from tokenweir.study.load.plan import PlannedRequest
from tokenweir.study.load.results import LoadOutcome, is_good, load_row, load_series, load_summary

SLO = Slo(ttft_ns=NS_PER_S, tpot_ns=80 * NS_PER_MS)


def completed(
    index: int, *, arrive_s: float = 0.0, ttft_s: float = 0.5, tpot_ms: float = 40, number: int = 0
) -> LoadAttempt:
    """Return a completed attempt of 11 output tokens."""
    arrive_ns = round(arrive_s * NS_PER_S)
    first_ns = arrive_ns + round(ttft_s * NS_PER_S)
    last_ns = first_ns + round(10 * tpot_ms * NS_PER_MS)
    return LoadAttempt(
        index,
        number,
        arrive_ns,
        fate=Fate.COMPLETED,
        first_ns=first_ns,
        last_ns=last_ns,
        end_ns=last_ns,
        output_tokens=11,
    )


def failed(index: int, fate: Fate, *, reason: str = "", at_s: float = 0.0) -> LoadAttempt:
    """Return an attempt that ended at once."""
    at_ns = round(at_s * NS_PER_S)
    end_ns = None if fate is Fate.UNSERVED else at_ns
    return LoadAttempt(index, 0, at_ns, fate=fate, reason=reason, end_ns=end_ns)


def outcome(*attempts: LoadAttempt) -> LoadOutcome:
    """Return a run of 10 s whose plan has one request of 100 tokens per index."""
    indexes = sorted({attempt.index for attempt in attempts})
    return LoadOutcome(
        plan=[PlannedRequest(index, 0, 89, 11, 11, "t") for index in indexes],
        attempts=attempts,
        span_ns=10 * NS_PER_S,
        preemptions=None,
        is_complete=True,
        capped=0,
        lag_ns_max=0,
        cpu_fraction=0.1,
    )


def test_is_good_when_either_bound_is_missed_then_it_is_not() -> None:
    """Good needs completion, TTFT and TPOT."""
    assert is_good(completed(0, ttft_s=1.0, tpot_ms=80), SLO)
    assert not is_good(completed(0, ttft_s=1.001), SLO)
    assert not is_good(completed(0, tpot_ms=81), SLO)
    assert not is_good(failed(0, Fate.REFUSED), SLO)


def test_summary_when_fates_differ_then_every_attempt_is_counted_once() -> None:
    """Attempts = completed + refused + abandoned + errors + unserved."""
    run = outcome(
        completed(0),
        failed(1, Fate.REFUSED, reason="overload_kv"),
        failed(2, Fate.ABANDONED),
        failed(3, Fate.ERROR, reason="broken_stream"),
        failed(4, Fate.UNSERVED),
    )
    summary = load_summary(run, SLO)
    fates = ("completed", "refused", "abandoned", "errors", "unserved")
    assert [summary[fate] for fate in fates] == [1, 1, 1, 1, 1]
    assert summary["arrivals"] == summary["unique"] == 5
    assert summary["refused_by_reason"] == {"overload_kv": 1}
    assert summary["errors_by_reason"] == {"broken_stream": 1}


def test_summary_when_some_are_never_served_then_their_ttft_is_infinite() -> None:
    """Percentiles over all unique requests see the unserved, those of survivors do not."""
    run = outcome(completed(0), completed(1), failed(2, Fate.REFUSED), failed(3, Fate.REFUSED))
    summary = load_summary(run, SLO)
    assert summary["ttft_p50_s"] == 0.5
    assert summary["ttft_p50_all_s"] is None
    assert summary["ttft_p99_all_s"] is None


def test_summary_when_a_retry_succeeds_then_goodput_is_told_in_each_way() -> None:
    """Per attempt, per unique request, and as its user feels it."""
    run = outcome(
        failed(0, Fate.REFUSED),
        completed(0, arrive_s=2.0, number=1),
        completed(1),
    )
    summary = load_summary(run, SLO)
    assert summary["retries"] == 1
    assert summary["goodput_per_attempt"] == 2 / 3
    assert summary["goodput_unique"] == 1.0
    assert summary["goodput_first_arrival"] == 0.5
    assert summary["goodput_tokens"] == 1.0
    assert summary["tokens_per_s"] == 2 * 100 / 10


def test_summary_when_nothing_was_sent_then_nothing_divides_by_zero() -> None:
    """An interrupted run without a single request still has a report."""
    summary = load_summary(outcome(), SLO)
    assert summary["arrivals"] == 0
    assert summary["goodput_unique"] == 0.0
    assert summary["ttft_p50_s"] is None


def test_series_when_summed_then_it_accounts_for_every_attempt() -> None:
    """Arrivals and ends of all seconds add up to the run, and what is open stays visible."""
    run = outcome(
        completed(0), failed(1, Fate.REFUSED, at_s=3.5), failed(2, Fate.UNSERVED, at_s=4.0)
    )
    series = load_series(run)
    assert sum(row["arrivals"] for row in series) == 3
    assert sum(row["completed"] for row in series) == 1
    assert series[3]["refused"] == 1
    assert series[-1]["in_flight"] == 1


def test_row_when_made_then_it_has_the_fields_of_the_json_output() -> None:
    """A row has the names that every command's JSON has."""
    row = load_row(outcome(completed(0)), SLO, load=2.0, policy=None, queue=None)
    assert list(row) == ["group", "load", "policy", "queue", "seeds", "ours", "series"]
    assert row["group"] == "load"
    assert set(row["ours"]) >= ROW_FIGURES
