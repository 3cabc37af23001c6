"""How much of a core does a process use? A load generator short of CPU measures itself.

Rule: used CPU seconds / elapsed seconds over the run; above ``CPU_FRACTION_MAX`` a run is void,
because queueing inside the client or the proxy would be taken for the engine's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["CPU_FRACTION_MAX", "CpuMeter"]

CPU_FRACTION_MAX = 0.7


class CpuMeter:
    """Reads one process's CPU time from /proc, or its own from the clock."""

    def __init__(self, pid: int | None = None) -> None:
        """Start measuring.

        Args:
            pid: A process of this machine, or None for this one.
        """
        self._pid = pid
        self._cpu_s = self._read_s()
        self._start_s = time.monotonic()

    def restart(self) -> None:
        """Measure from now on."""
        self._cpu_s = self._read_s()
        self._start_s = time.monotonic()

    def fraction(self) -> float:
        """Return the share of one core used since the start, 0 where nothing can be read."""
        elapsed_s = time.monotonic() - self._start_s
        return max(self._read_s() - self._cpu_s, 0.0) / elapsed_s if elapsed_s > 0 else 0.0

    def _read_s(self) -> float:
        if self._pid is None:
            return time.process_time()
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return 0.0
        # The command's name, in parentheses, may hold spaces; user and system time are 14 and 15.
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
