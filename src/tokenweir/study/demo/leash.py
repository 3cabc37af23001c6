"""How do the demo's processes notice that the demo is gone, even where it was killed?

Their standard input is a pipe that the demo holds and never writes to: it closes with the demo. A
process watches it only where the environment says so, which nobody but the demo does.
"""

from __future__ import annotations

import os
import signal
import threading
import time

__all__ = ["VARIABLE", "watch_stdin"]

VARIABLE = "TOKENWEIR_END_WITH_STDIN"

_STOP_S_MAX = 3.0


def watch_stdin() -> None:
    """Stop this process in order when its standard input ends, and by force soon after."""
    threading.Thread(target=_watch, name="end-with-stdin", daemon=True).start()


def _watch() -> None:
    try:
        while os.read(0, 1):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_S_MAX)
    os._exit(1)
