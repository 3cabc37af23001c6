"""Reason codes are a contract with the outside."""

import pytest

from tokenweir.core.reasons import REASONS, ReasonCode

# Clients and dashboards know these words. A line may be added here, never changed or removed.
GOLDEN = {
    "fits": 200,
    "waiting": 200,
    "bypassed": 200,
    "overload_kv": 429,
    "overload_concurrency": 429,
    "overload_gate": 429,
    "overload_prefill": 429,
    "overload_pace": 429,
    "class_paused": 429,
    "interrupted": 429,
    "queue_full": 429,
    "queue_displaced": 429,
    "tenant_concurrency": 429,
    "queue_timeout": 429,
    "deadline_unreachable": 429,
    "deadline_exceeded": 429,
    "retry_budget_exhausted": 429,
    "attempts_exhausted": 429,
    "engine_busy": 429,
    "request_too_large": 400,
    "output_max_too_large": 400,
    "no_healthy_replica": 503,
    "upstream_unreachable": 503,
    "upstream_broken": 502,
    "upstream_timeout": 504,
    "deadline_passed": 504,
    "draining": 503,
    "bad_request": 400,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_too_large": 413,
}
RETRYABLE_STATUSES = {429, 502, 503, 504}
FINAL_STATUSES = {400, 401, 403, 404, 405, 413, 422}


def test_codes_when_listed_then_are_the_golden_ones() -> None:
    """A code or a status that clients know cannot change unseen."""
    assert {code.value: REASONS[code].status for code in ReasonCode} == GOLDEN


def test_table_when_listed_then_has_a_row_for_each_code() -> None:
    """No decision can carry a reason that means nothing outside."""
    assert set(REASONS) == set(ReasonCode)


@pytest.mark.parametrize("code", ReasonCode)
def test_status_when_looked_up_then_is_one_of_the_contract(code: ReasonCode) -> None:
    """Overload is never a 500, and nothing else is made up."""
    assert REASONS[code].status in {200} | RETRYABLE_STATUSES | FINAL_STATUSES


@pytest.mark.parametrize("code", ReasonCode)
def test_retryable_when_looked_up_then_agrees_with_the_status(code: ReasonCode) -> None:
    """A client that only sees the status comes to the same conclusion."""
    assert REASONS[code].is_retryable == (REASONS[code].status in RETRYABLE_STATUSES)


@pytest.mark.parametrize("code", ReasonCode)
def test_action_when_looked_up_then_is_one_lower_case_sentence(code: ReasonCode) -> None:
    """Every refusal says what to do, in a form that fits into a message."""
    action = REASONS[code].action
    assert action
    assert action[0].islower()
    assert not action.endswith(".")
    assert "\n" not in action


@pytest.mark.parametrize("code", ReasonCode)
def test_code_when_written_then_fits_into_a_header_and_a_label(code: ReasonCode) -> None:
    """Codes are lower-case words joined by underscores."""
    assert code.value.replace("_", "").isalpha()
    assert code.value == code.value.lower()
