"""Admission control and overload protection for LLM inference.

The façade and the values it speaks in; everything else is found in the packages below.
"""

from __future__ import annotations

from tokenweir.core.admitter import Admitter, AdmitterConfig, Mode, Snapshot
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
from tokenweir.core.policy import POLICIES, Policy, policy
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import REASONS, ReasonCode
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.signals import Signals

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
