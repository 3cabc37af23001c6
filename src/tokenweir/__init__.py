"""Admission control and overload protection for LLM inference.

The façade and the values it speaks in; everything else is found in the packages below. A name is
imported when it is first asked for, so that the command line answers before numpy is there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenweir.core.admitter import Admitter
    from tokenweir.core.admitter_config import AdmitterConfig
    from tokenweir.core.decision import (
        Admit,
        Decision,
        Degrade,
        Dispatch,
        DriftAlarm,
        Effect,
        Enqueue,
        Expire,
        LeaseLost,
        Reject,
    )
    from tokenweir.core.errors import ConfigError, ContractError, InvariantError, TokenweirError
    from tokenweir.core.ledger import LedgerConfig, Settlement
    from tokenweir.core.mode import Mode
    from tokenweir.core.policy import POLICIES, Policy, policy
    from tokenweir.core.queues import QueueLimits
    from tokenweir.core.reasons import REASONS, ReasonCode
    from tokenweir.core.request import Outcome, Priority, Request, Usage
    from tokenweir.core.signals import Signals
    from tokenweir.core.snapshot import Snapshot

__all__ = [
    "POLICIES",
    "REASONS",
    "Admit",
    "Admitter",
    "AdmitterConfig",
    "ConfigError",
    "ContractError",
    "Decision",
    "Degrade",
    "Dispatch",
    "DriftAlarm",
    "Effect",
    "Enqueue",
    "Expire",
    "InvariantError",
    "LeaseLost",
    "LedgerConfig",
    "Mode",
    "Outcome",
    "Policy",
    "Priority",
    "QueueLimits",
    "ReasonCode",
    "Reject",
    "Request",
    "Settlement",
    "Signals",
    "Snapshot",
    "TokenweirError",
    "Usage",
    "policy",
]

# module of the core: the names that come from it
_HOMES = {
    "admitter": ("Admitter",),
    "admitter_config": ("AdmitterConfig",),
    "mode": ("Mode",),
    "snapshot": ("Snapshot",),
    "decision": (
        "Admit",
        "Decision",
        "Degrade",
        "Dispatch",
        "DriftAlarm",
        "Effect",
        "Enqueue",
        "Expire",
        "LeaseLost",
        "Reject",
    ),
    "errors": ("ConfigError", "ContractError", "InvariantError", "TokenweirError"),
    "ledger": ("LedgerConfig", "Settlement"),
    "policy": ("POLICIES", "Policy", "policy"),
    "queues": ("QueueLimits",),
    "reasons": ("REASONS", "ReasonCode"),
    "request": ("Outcome", "Priority", "Request", "Usage"),
    "signals": ("Signals",),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(f"tokenweir.core.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
