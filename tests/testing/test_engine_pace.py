"""When steps end on a wall clock."""

from tokenweir.testing.engine_pace import LATE_STEPS_MAX, StepPace


def test_pace_when_the_loop_is_on_time_then_steps_follow_each_other() -> None:
    """A step ends one duration after the one before, not after the moment it was noticed."""
    pace = StepPace(speed=1.0)
    pace.resume(now_ns=1_000)
    pace.begin_step(100, now_ns=1_000)
    assert pace.wait_ns(now_ns=1_000) == 100
    pace.begin_step(50, now_ns=1_103)
    assert pace.wait_ns(now_ns=1_103) == 47


def test_pace_when_faster_then_durations_shrink() -> None:
    """Speed divides durations."""
    pace = StepPace(speed=4.0)
    pace.resume(now_ns=0)
    pace.begin_step(100, now_ns=0)
    assert pace.wait_ns(now_ns=0) == 25


def test_pace_when_a_little_late_then_nothing_is_lost() -> None:
    """A delay of some steps is caught up with."""
    pace = StepPace(speed=1.0)
    pace.resume(now_ns=0)
    pace.begin_step(100, now_ns=0)
    for _ in range(5):
        pace.begin_step(100, now_ns=550)
    assert pace.wait_ns(now_ns=550) == 50
    assert pace.lost_ns == 0


def test_pace_when_very_late_then_only_the_bounded_part_is_caught_up() -> None:
    """After a standstill no more than the bound of steps runs at once."""
    pace = StepPace(speed=1.0)
    pace.resume(now_ns=0)
    pace.begin_step(100, now_ns=0)
    steps = 0
    while pace.wait_ns(now_ns=1_000_000) == 0:
        pace.begin_step(100, now_ns=1_000_000)
        steps += 1
    assert steps == LATE_STEPS_MAX + 1
    assert pace.lost_ns == 1_000_000 - 100 - LATE_STEPS_MAX * 100
