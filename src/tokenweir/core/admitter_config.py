"""What can be set of an admitter? Settings of its parts, each checked where it is defined."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenweir.core.aimd import AimdConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import FairnessConfig
from tokenweir.core.guards import GuardConfig
from tokenweir.core.headroom import HeadroomConfig
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.pausing import PauseConfig
from tokenweir.core.queues import QueueLimits
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.tenants import TenantConfig

__all__ = ["AdmitterConfig"]


@dataclass(frozen=True, slots=True)
class AdmitterConfig:
    """Settings of one pool's admitter.

    Attributes:
        queue: How much may wait, by class and in all.
        fairness: Row of ``FAIRNESS``: whose turn it is among a class's tenants.
        charges: What that row charges.
        ordering: Row of ``ORDERINGS``: the order inside a tenant.
        tenants: Weights and caps.
        ledger: How long holds last.
        calibration: How telemetry is weighed.
        guards: What guarded policies keep besides the pool.
        headroom: What is kept free because predictions are wrong.
        limit: How the outer limit of limited policies moves.
        pause: When background work pauses.
        returns: How returns are paced and retries bounded; None to advise each refused request by
            itself, and let every retry through.
        rate_hint_tokens_per_s: Service rate to start from, or None to measure it.
        audit_rows_max: Refusals kept for listing.
    """

    queue: QueueLimits = field(default_factory=QueueLimits)
    fairness: str = "vtc"
    charges: FairnessConfig = field(default_factory=FairnessConfig)
    ordering: str = "earliest_deadline"
    tenants: TenantConfig = field(default_factory=TenantConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    guards: GuardConfig = field(default_factory=GuardConfig)
    headroom: HeadroomConfig = field(default_factory=HeadroomConfig)
    limit: AimdConfig = field(default_factory=AimdConfig)
    pause: PauseConfig = field(default_factory=PauseConfig)
    returns: ReturnConfig | None = field(default_factory=ReturnConfig)
    rate_hint_tokens_per_s: float | None = None
    audit_rows_max: int = 1_000

    def __post_init__(self) -> None:
        """Check the range."""
        if self.audit_rows_max < 0:
            raise ConfigError(
                f"audit_rows_max {self.audit_rows_max} is not allowed, allowed: 0 or more"
            )
