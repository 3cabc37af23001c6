"""What callers ask for by headers, and what is granted of it."""

from __future__ import annotations

import pytest

from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.http.paths.form import BadRequest
from tokenweir.http.wishes import CLASS_WORDS, Allowance, Grant, Wishes, grant, wishes_of

S = NS_PER_S
URGENT = Allowance(highest=Priority.P0, default=Priority.P1)


def granted(wishes: Wishes, allowance: Allowance | None = None) -> Grant:
    """What is granted where classes have their default waits."""
    return grant(wishes, allowance or Allowance(), wait_ns_max_of=QueueLimits().wait_ns_max_of)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], Wishes()),
        ([(b"x-tokenweir-class", b"P2")], Wishes(priority=Priority.P2)),
        ([(b"x-tokenweir-class", b" batch ")], Wishes(priority=Priority.P3)),
        ([(b"x-tokenweir-wait-ms", b"0")], Wishes(wait_ns=0)),
        ([(b"x-tokenweir-wait-ms", b"1500")], Wishes(wait_ns=1_500 * NS_PER_MS)),
        ([(b"x-tokenweir-deadline-ms", b"1")], Wishes(deadline_ns=NS_PER_MS)),
        (
            [(b"x-tokenweir-deadline-ms", b"999999999")],
            Wishes(deadline_ns=999_999_999 * NS_PER_MS),
        ),
    ],
)
def test_headers_when_they_can_be_read_then_are_wishes(
    headers: list[tuple[bytes, bytes]], expected: Wishes
) -> None:
    """What is not there is not asked for."""
    assert wishes_of(headers) == expected


@pytest.mark.parametrize("word", CLASS_WORDS)
def test_class_when_named_in_any_case_then_is_known(word: str) -> None:
    """By number and by what it is for."""
    for spelt in (word, word.upper()):
        headers = [(b"x-tokenweir-class", spelt.encode())]
        assert wishes_of(headers).priority is CLASS_WORDS[word]


WAITS = "allowed: whole milliseconds, 0 to 999999999"
DEADLINES = "allowed: whole milliseconds, 1 to 999999999"
CLASSES = "allowed: P0 to P3, or system, interactive, normal, agent, batch"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("class", b"urgent", f"'urgent', {CLASSES}"),
        ("class", b"", f"'', {CLASSES}"),
        ("class", b"P4", f"'P4', {CLASSES}"),
        ("class", b"x" * 900, f"'{'x' * 40}', {CLASSES}"),
        ("class", b"\xff\n", f"'\\xff\\n', {CLASSES}"),
        ("wait-ms", b"-1", f"'-1', {WAITS}"),
        ("wait-ms", b"5s", f"'5s', {WAITS}"),
        ("wait-ms", b"1.5", f"'1.5', {WAITS}"),
        ("wait-ms", b"1000000000", f"'1000000000', {WAITS}"),
        ("deadline-ms", b"0", f"'0', {DEADLINES}"),
        ("deadline-ms", b"", f"'', {DEADLINES}"),
        ("deadline-ms", "\u0661".encode(), f"'\\xd9\\xa1', {DEADLINES}"),
        ("deadline-ms", b"soon", f"'soon', {DEADLINES}"),
    ],
)
def test_header_when_it_cannot_be_read_then_one_line_says_what_is_allowed(
    name: str, value: bytes, line: str
) -> None:
    """A wish that is quietly dropped would be thought granted."""
    with pytest.raises(BadRequest) as caught:
        wishes_of([(f"x-tokenweir-{name}".encode(), value)])
    assert str(caught.value) == f"x-tokenweir-{name} is {line}"
    assert caught.value.param == f"x-tokenweir-{name}"


@pytest.mark.parametrize(
    ("asked", "allowance", "priority", "clamped"),
    [
        (None, Allowance(), Priority.P1, ()),
        (Priority.P0, Allowance(), Priority.P1, ("class=P1",)),
        (Priority.P3, Allowance(), Priority.P3, ()),
        (None, URGENT, Priority.P1, ()),
        (Priority.P0, URGENT, Priority.P0, ()),
        (
            Priority.P1,
            Allowance(highest=Priority.P2, default=Priority.P3),
            Priority.P2,
            ("class=P2",),
        ),
        (None, Allowance(highest=Priority.P2, default=Priority.P3), Priority.P3, ()),
    ],
)
def test_class_when_above_what_the_tenant_may_then_is_lowered_and_told(
    asked: Priority | None, allowance: Allowance, priority: Priority, clamped: tuple[str, ...]
) -> None:
    """Lower ones are granted as they are."""
    got = granted(Wishes(priority=asked), allowance)
    assert (got.priority, got.clamped) == (priority, clamped)


@pytest.mark.case("CASE-E7")
@pytest.mark.parametrize(
    ("wait_ns", "tenant_ns", "expected_ns", "clamped"),
    [
        (None, None, None, ()),
        (None, 2 * S, 2 * S, ()),
        (S, None, S, ()),
        (0, 2 * S, 0, ()),
        (5 * S, None, 5 * S, ()),
        (6 * S, None, 5 * S, ("wait-ms=5000",)),
        (3 * S, 2 * S, 2 * S, ("wait-ms=2000",)),
        (9 * S, 7 * S, 5 * S, ("wait-ms=5000",)),
    ],
)
def test_wait_when_asked_for_then_can_only_be_shortened(
    wait_ns: int | None, tenant_ns: int | None, expected_ns: int | None, clamped: tuple[str, ...]
) -> None:
    """P1 waits 5 s: the shortest of class, tenant and caller holds."""
    got = granted(Wishes(wait_ns=wait_ns), Allowance(wait_ns_max=tenant_ns))
    assert (got.wait_ns_max, got.clamped) == (expected_ns, clamped)


def test_wait_when_the_class_was_clamped_then_that_class_bounds_it() -> None:
    """Not the one that was asked for: P0 would be half a second."""
    got = granted(Wishes(priority=Priority.P0, wait_ns=6 * S))
    assert got.clamped == ("class=P1", "wait-ms=5000")
    assert got.headers == [(b"x-tokenweir-clamped", b"class=P1, wait-ms=5000")]
    assert granted(Wishes()).headers == []


@pytest.mark.case("CASE-E10")
@pytest.mark.parametrize(
    ("asked_ns", "expected_ns", "clamped"),
    [
        (None, None, ()),
        (NS_PER_MS, S, ("deadline-ms=1000",)),
        (S - 1, S, ("deadline-ms=1000",)),
        (S, S, ()),
        (60 * S, 60 * S, ()),
    ],
)
def test_deadline_when_nearer_than_the_tenant_may_then_is_moved_and_told(
    asked_ns: int | None, expected_ns: int | None, clamped: tuple[str, ...]
) -> None:
    """No place in the queue can be had by claiming what no engine can do."""
    got = granted(Wishes(deadline_ns=asked_ns))
    assert (got.deadline_ns, got.clamped) == (expected_ns, clamped)
