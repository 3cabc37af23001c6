"""Do decisions bind?"""

from __future__ import annotations

from enum import Enum

__all__ = ["Mode"]


class Mode(Enum):
    """Whether decisions bind.

    ENFORCE is the normal one; OBSERVE decides and records but admits everything; BYPASS admits
    without asking, and still accounts, so that enforcing can start again from a true ledger.
    """

    ENFORCE = "enforce"
    OBSERVE = "observe"
    BYPASS = "bypass"
