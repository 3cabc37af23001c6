"""What is a refused request told, and what is kept of it?

Rule: where the limit is one that all share, its client is given a return slot, else the predicted
wait; what cannot succeed later gets no time at all. Each refusal is audited, and one at arrival is
charged to its tenant, unless nobody could have been let in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tokenweir.core.account import Account
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.audit import RefusalAudit
from tokenweir.core.capacity import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.decision import Reject
from tokenweir.core.fairness import Fairness, RefusalCharges
from tokenweir.core.reasons import REASONS, ReasonCode, Scope
from tokenweir.core.request import Request, ReturnTicket
from tokenweir.core.retry import Rng, retry_after_ns
from tokenweir.core.returns import ReturnDesk, ticket_of
from tokenweir.core.units import Nanos

__all__ = ["NEVER_OVERRIDDEN", "Refusing"]

# What observe mode cannot let through, and nobody is charged for: nothing is there to serve it.
NEVER_OVERRIDDEN = frozenset({ReasonCode.NO_HEALTHY_REPLICA, ReasonCode.DRAINING})
# Whose limit was hit where returns are paced: what all share. A tenant's own limit, or this
# gateway's end, says nothing of when the pool has room.
_PACED_SCOPES = frozenset({Scope.POOL, Scope.ENGINE})


class Refusing:
    """Advice, audit and charges of one pool's refusals."""

    def __init__(
        self, config: AdmitterConfig, *, rng: Rng, desk: ReturnDesk | None, counts: Counter[str]
    ) -> None:
        """Start with none.

        Args:
            config: Settings of the parts.
            rng: Chance for the jitter of the advice.
            desk: Gives out return slots, None to advise each refused request by itself.
            counts: Of the owner, where refusals are counted.
        """
        self.audit = RefusalAudit(rows_max=config.audit_rows_max)
        self.charges = RefusalCharges(config.charges)
        self._tenants = config.tenants
        self._rng = rng
        self._desk = desk
        self._counts = counts

    def reject(
        self,
        reason: ReasonCode,
        *,
        request: Request,
        estimate: Estimate,
        shortage: Shortage,
        mean_tokens: Callable[[], float],
        wait_ns: Nanos,
        rate_tokens_per_s: float | None,
        now_ns: Nanos,
    ) -> Reject:
        """Return a refusal that may be retried, with its advice.

        Args:
            reason: Why.
            request: What is refused.
            estimate: What it would have held.
            shortage: What was missing.
            mean_tokens: Returns what it is expected to use, at the mean of those like it; asked
                only where a slot is given.
            wait_ns: Predicted until there is room.
            rate_tokens_per_s: Of service, None while nothing is known.
            now_ns: Monotonic time.
        """
        advice_ns: Nanos | None = None
        ticket: ReturnTicket | None = None
        row, desk = REASONS[reason], self._desk
        # While no rate is known nobody can be paced by it.
        if desk is None or rate_tokens_per_s is None or row.scope not in _PACED_SCOPES:
            advice_ns = retry_after_ns(wait_ns, rng=self._rng) if row.is_advised else None
        elif row.is_advised:
            slot = desk.advise(
                request,
                cost_tokens=int(mean_tokens()),
                rate_tokens_per_s=rate_tokens_per_s,
                wait_ns=wait_ns,
                now_ns=now_ns,
                rng=self._rng,
            )
            if slot is not None:
                advice_ns, ticket = slot.told_ns - now_ns, ticket_of(slot)
        return Reject(
            reason,
            retry_after_ns=advice_ns,
            wait_ns=wait_ns,
            ticket=ticket,
            used_tokens=shortage.used_tokens,
            limit_tokens=shortage.limit_tokens,
            cost_tokens=estimate.tokens,
        )

    def note(
        self,
        request: Request,
        reject: Reject,
        *,
        accounts: Sequence[Account],
        is_enforced: bool,
        now_ns: Nanos,
    ) -> None:
        """Audit and count a refusal."""
        self._counts["refused" if is_enforced else "refused_in_observation"] += 1
        self.audit.note(
            request,
            reject.reason,
            occupied_tokens=sum(account.occupied_tokens for account in accounts),
            is_enforced=is_enforced,
            now_ns=now_ns,
        )

    def charge(self, request: Request, reject: Reject, *, fairness: Fairness) -> None:
        """Let a tenant pay for what was refused, unless nobody could have been let in."""
        if reject.reason not in NEVER_OVERRIDDEN:
            tenant = request.tenant
            weight = self._tenants.of(tenant).weight
            self.charges.note_refused(fairness, tenant, weight=weight)
