"""The 27-tenant arena: what is measured of fairness, and what the rows make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.study.arena.fair import course_of, jain, jain_by_window, max_min, worst_gap_units
from tokenweir.study.arena.report import arena_page
from tokenweir.study.arena.run import SMALL_BELOW, arena_document, arena_experiment, rows_from
from tokenweir.study.arena.served import Served, measured
from tokenweir.study.arena.tables import TARGETS, arena_table, verdicts
from tokenweir.study.report.page import Page


def served(*rows: tuple[str, float, float, float, int, int]) -> Served:
    """Return requests as (tenant, arrival, first token, end, prompt, output)."""
    columns = [np.array(column, dtype=np.float64) for column in list(zip(*rows, strict=True))[1:]]
    return Served(tuple(row[0] for row in rows), *columns)


def page_text(page: Page) -> str:
    """Return all cells and cards of a page."""
    words: list[str] = []
    for section in page.sections:
        words += [section.heading, *(card.what for card in section.cards)]
        if section.table is not None:
            words += [str(cell) for row in section.table.rows for cell in row]
    return " ".join(words)


def test_max_min_when_some_ask_for_little_then_the_others_share_what_they_leave() -> None:
    """The oracle: 100 among 10, 20 and two of any amount is 10, 20, 35, 35."""
    any_amount = float("inf")
    assert max_min(100.0, [any_amount, 10.0, any_amount, 20.0]) == [35.0, 10.0, 35.0, 20.0]
    assert max_min(30.0, [any_amount, 20.0]) == [15.0, 15.0]
    assert max_min(0.0, [5.0]) == [0.0]


def test_jain_when_one_has_all_then_is_one_in_n() -> None:
    """1 for even, 1/n for one of n."""
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) == 1.0


def test_windows_when_one_of_two_backlogged_gets_three_quarters_then_index_says_so() -> None:
    """Service of 300 and 100 units of 400 is 1.5 and 0.5 of the share: index 0.8."""
    rows = []
    for second in range(240):
        rows.append(("a", 0.0, second + 0.5, second + 0.5, 300, 1))
        rows.append(("b", 0.0, second + 0.5, second + 0.5, 100, 1))
    rows += [("a", 0.0, 300.0, 300.0, 1, 1), ("b", 0.0, 300.0, 300.0, 1, 1)]
    # Never backlogged, and served: what it asks for is no concern of the others' shares.
    rows += [("quiet", second, second, second + 0.1, 10, 1) for second in range(0, 240, 10)]
    windows = jain_by_window(course_of(served(*rows)))
    before = [row for row in windows if row[0] <= 210]
    assert [middle for middle, _, _ in before] == [30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0]
    for _, index, backlogged in before:
        assert backlogged == 2
        assert index == pytest.approx(jain([302 / 202, 102 / 202]), abs=1e-3)


def test_windows_when_nobody_waits_through_them_then_there_are_none() -> None:
    """Who is served at once has had no share withheld."""
    rows = [("a", float(s), s + 0.5, s + 0.6, 10, 1) for s in range(100)]
    rows += [("b", float(s), s + 0.5, s + 0.6, 10, 1) for s in range(100)]
    assert jain_by_window(course_of(served(*rows))) == []


def test_gap_when_both_wait_then_is_the_largest_change_over_that_span() -> None:
    """What is served before they wait together does not count, nor what ends the wait."""
    rows = [
        ("a", 0.0, 0.2, 0.2, 5_000, 1),
        *(("a", 10.0, 20.5 + s, 20.5 + s, 98, 1) for s in range(10)),
        ("b", 10.0, 40.0, 40.0, 998, 1),
        ("a", 60.0, 60.1, 60.1, 9_000, 1),
    ]
    assert worst_gap_units(course_of(served(*rows))) == pytest.approx(900.0)


def test_small_when_tenants_send_much_then_are_not() -> None:
    """The line is the one of the data's authors."""
    rows = measured("fcfs")
    assert int(rows.of_small(SMALL_BELOW).sum()) == 261
    assert len(rows.tenants) == 1_500


def test_measured_when_no_such_policy_then_says_which_there_are() -> None:
    """One line."""
    with pytest.raises(ConfigError, match="'lcf', allowed: fcfs, vtc, vtc_oracle, vtc_predict"):
        measured("lcf")


def test_rows_when_asked_for_then_first_come_is_among_them() -> None:
    """All are compared with it."""
    assert rows_from("vtc") == ["vtc", "fcfs"]
    assert rows_from("all") == ["vtc", "sfq", "round_robin", "fcfs"]
    with pytest.raises(ConfigError, match="unknown fairness 'luck'"):
        rows_from("luck")


def test_experiment_when_seeds_differ_then_only_times_move_and_little() -> None:
    """Up to a second, with the same requests."""
    first, second = (arena_experiment("vtc", seed=seed).arrivals for seed in (1, 2))
    lengths = [
        sorted((a.tenant, a.prompt_tokens, a.output_tokens) for a in arrivals)
        for arrivals in (first, second)
    ]
    assert lengths[0] == lengths[1]
    assert first != second
    assert abs(first[-1].arrival_ns - second[-1].arrival_ns) <= 1_000_000_000


@pytest.fixture(scope="module")
def arena() -> dict[str, Any]:
    """The counter row and first come, at the recorded times."""
    return arena_document(["vtc", "fcfs"], seeds=[1])


def test_arena_when_first_come_then_is_what_was_measured(arena: dict[str, Any]) -> None:
    """The fit carries over from paces to what it was not fitted to: waits and throughput."""
    ours, theirs = (row for row in arena["rows"] if row["fairness"] == "fcfs")
    assert ours["tokens_per_s"] == pytest.approx(theirs["tokens_per_s"], rel=0.02)
    assert ours["ttft_p50_s"] == pytest.approx(theirs["ttft_p50_s"], rel=0.1)
    assert ours["small_ttft_p50_s"] == pytest.approx(theirs["small_ttft_p50_s"], rel=0.1)
    assert ours["unserved"] == 0


def test_arena_when_counters_turn_then_small_tenants_are_served_soon_and_all_evenly(
    arena: dict[str, Any],
) -> None:
    """20 x sooner than first come, as evenly as promised, with the same throughput."""
    found = {row["target"]: row for row in verdicts(arena)}
    assert len(found) == len(TARGETS)
    for name, row in found.items():
        # On one trace the median moves by a fifth by chance; several seeds judge it.
        if "measured vtc row's" not in name:
            assert row["holds"], row


def test_arena_when_first_come_then_keeps_neither_target(arena: dict[str, Any]) -> None:
    """What is measured can tell: unfair rows fail."""
    first = next(r for r in arena["rows"] if r["fairness"] == "fcfs" and not r["is_measured"])
    unfair = {**arena, "rows": [*arena["rows"], {**first, "fairness": "unfair"}]}
    found = [row for row in verdicts(unfair) if row["fairness"] == "unfair"]
    assert [row["holds"] for row in found] == [False, False, False, True, False, False]


def test_arena_when_shown_then_names_every_row(arena: dict[str, Any]) -> None:
    """Table and page have ours and the measured ones."""
    assert arena_table(arena).row_count == 6
    page = arena_page(arena, verdicts(arena), command="tokenweir arena")
    assert [section.heading for section in page.sections] == ["Targets", "Rows", "Tenants"]
    table = page.sections[1].table
    assert table is not None
    assert [row[0] for row in table.rows][:3] == ["vtc", "fcfs", "fcfs, measured"]
