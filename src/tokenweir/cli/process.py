"""How does the command line behave as a process? Its signals, its outputs, and its exit codes.

A command that is interrupted leaves its blocks in order, ends its own children there, and exits
with 128 + the signal. Until a command runs there is nothing to put in order, and it just ends.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from types import FrameType

__all__ = ["Interrupts", "flush_stdout", "mend_streams"]

# A second Ctrl-C so soon is the same one: a terminal sends it to all, a wrapper passes it on.
_SAME_INTERRUPT_S = 1.0
# Clean-up takes less.
_CLEAN_UP_S_MAX = 4.0


class Interrupts:
    """What SIGINT and SIGTERM do, for as long as the block is entered.

    Signals that somebody else has taken or made ignored are left as they are.
    """

    def __init__(self) -> None:
        self._is_command_running = False
        self._interrupted_s: float | None = None
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        """Take both signals."""
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._on_interrupt)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_terminate)
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        return self

    def command_begins(self) -> None:
        """From now on there is something to put in order."""
        self._is_command_running = True

    def __exit__(self, *exc_info: object) -> None:
        """Nothing is left to put in order: give them back their default, which ends at once."""
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._unraisable
            for signum in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    # Where it ends for a signal, the same one again shall not change the exit code.
                    is_ending = self._interrupted_s is not None
                    signal.signal(signum, signal.SIG_IGN if is_ending else signal.SIG_DFL)

    def _on_interrupt(self, signum: int, frame: FrameType | None) -> None:
        # An exception inside the import machinery may be swallowed, or printed with a traceback.
        if not self._is_command_running or _is_importing(frame):
            _exit_now(128 + signum)
        now_s = time.monotonic()
        if self._interrupted_s is None:
            self._interrupted_s = now_s
            _exit_later(128 + signum)
            raise KeyboardInterrupt
        if now_s - self._interrupted_s > _SAME_INTERRUPT_S:
            _exit_now(128 + signum)

    def _on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        # Where the interpreter cannot pass an exception on, as in what it calls around a fork, the
        # interrupt would be lost, and printed with a traceback.
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _exit_now(128 + signal.SIGINT)
        self._unraisable(unraisable)

    def _on_terminate(self, signum: int, frame: FrameType | None) -> None:
        if not self._is_command_running or _is_importing(frame):
            _exit_now(128 + signum)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # What follows is clean-up, which Ctrl-C shall not break off either.
        self._interrupted_s = time.monotonic()
        _exit_later(128 + signum)
        raise SystemExit(128 + signum)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _exit_now(code: int) -> None:
    if os.isatty(2):
        # A progress bar hides the cursor.
        os.write(2, b"\x1b[?25h")
    os._exit(code)


def _exit_later(code: int) -> None:
    signal.signal(signal.SIGALRM, lambda signum, frame: _exit_now(code))
    signal.setitimer(signal.ITIMER_REAL, _CLEAN_UP_S_MAX)


def mend_streams() -> None:
    """Make closed standard streams lead nowhere, and messages that cannot be written no error.

    A descriptor below 3 that is closed would be taken by the first socket or file that is opened,
    and would then be written to as if it were the stream.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    if sys.stderr is None:
        sys.stderr = _Lenient(io.FileIO(2, "w", closefd=False))
    elif isinstance(sys.stderr, io.TextIOWrapper):
        encoding = sys.stderr.encoding
        sys.stderr = _Lenient(
            sys.stderr.detach(),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=True,
        )


def flush_stdout() -> str | None:
    """Write out what is left; return why that cannot be done, or None where it can.

    Where it cannot, stdout leads nowhere afterwards, so that the interpreter says nothing at exit.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        return "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return None


class _Lenient(io.TextIOWrapper):
    """Standard error on a full disk or a closed pipe: what cannot be said is left unsaid."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return
