"""The command line in a process of its own, as a user runs it."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["assert_one_line", "run"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tokenweir", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], expected: str) -> None:
    """Check that a command ended with code 2, nothing on stdout, and one line that says why."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("tokenweir: ")
    assert expected in line
