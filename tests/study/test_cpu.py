"""How much of a core a process uses."""

import os
import time

import pytest

from tokenweir.study.cpu import CpuMeter


def test_meter_when_the_process_is_not_there_then_it_reads_nothing() -> None:
    """A process that has ended shows no use, and no error."""
    assert CpuMeter(2**22 + 1).fraction() == 0.0


@pytest.mark.integration
def test_meter_when_this_process_works_then_both_ways_of_reading_agree() -> None:
    """/proc and the process's own clock tell about the same."""
    own, read = CpuMeter(), CpuMeter(os.getpid())
    end_s = time.process_time() + 0.3
    while time.process_time() < end_s:
        pass
    assert own.fraction() == pytest.approx(read.fraction(), abs=0.15)
