"""What is remembered of a request while its reservation is open, and who pays for it?

Rule: a tenant is charged what is predicted when its request enters, more when the request outgrows
that, and at the end the difference to what it used, if it was charged in the beginning. Of a lost
lease nobody knows what was used, so that the charge stays.
Properties: INV-ADMITTER-2 (exactly the open reservations are known), INV-TENANT-1 (holdings are
their sums).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenweir.core.cost import Estimate
from tokenweir.core.fairness import Fairness
from tokenweir.core.lengths import Forecast
from tokenweir.core.request import Priority, Request, Usage
from tokenweir.core.tenants import TenantConfig, TenantHoldings
from tokenweir.core.units import Nanos, ReservationId

__all__ = ["OpenRequest", "OpenRequests"]


@dataclass(slots=True)
class OpenRequest:
    """One of them.

    Attributes:
        request: What was admitted.
        estimate: What it reserves.
        fairness: Whose counters it is charged to.
        charged_output_tokens: So far, or what would have been.
        is_spared: Whether nobody may interrupt it any more.
        is_charged: Whether its tenant was charged when it entered.
        draws: Lengths drawn for it.
        arrived_ns: When it came.
        waited_ns: How long it has been queued.
        due_ns: When it was to have begun to be answered, by which earliest-deadline orders.
        interruptions: How often it was put back.
        is_interrupted: Whether its driver has been told to stop it.
        forecast: By which its length will be judged, if it is predicted.
    """

    request: Request
    estimate: Estimate
    fairness: Fairness
    charged_output_tokens: int
    arrived_ns: Nanos
    waited_ns: Nanos = 0
    due_ns: Nanos = 0
    interruptions: int = 0
    is_interrupted: bool = False
    is_spared: bool = False
    is_charged: bool = False
    draws: int = 1
    forecast: Forecast | None = None


class OpenRequests:
    """All of one pool, by reservation."""

    def __init__(self, tenants: TenantConfig) -> None:
        """Start with none."""
        self.holdings = TenantHoldings(tenants)
        self._tenants = tenants
        self._open: dict[ReservationId, OpenRequest] = {}
        self._by_class = dict.fromkeys(Priority, 0)

    def __len__(self) -> int:
        """Count them."""
        return len(self._open)

    def __iter__(self) -> Iterator[ReservationId]:
        """Yield their reservations."""
        return iter(self._open)

    def get(self, reservation_id: ReservationId) -> OpenRequest | None:
        """Return one, or None where it is not open."""
        return self._open.get(reservation_id)

    def of_class(self, priority: Priority) -> int:
        """Count those of a class."""
        return self._by_class[priority]

    def open(self, reservation_id: ReservationId, opened: OpenRequest) -> None:
        """Remember a request that enters, and charge its tenant."""
        request, estimate = opened.request, opened.estimate
        self._open[reservation_id] = opened
        self._by_class[request.priority] += 1
        self.holdings.open(request.tenant, tokens=estimate.tokens)
        opened.is_charged = self._charge(
            opened, prompt_tokens=estimate.unread_tokens, output_tokens=estimate.output_tokens
        )

    def outgrow(self, opened: OpenRequest, *, output_tokens: int) -> None:
        """Charge what a request is now taken to produce beyond what was charged."""
        more = output_tokens - opened.charged_output_tokens
        if more > 0:
            opened.charged_output_tokens += more
            self._charge(opened, prompt_tokens=0, output_tokens=more)

    def close(self, reservation_id: ReservationId, *, usage: Usage | None) -> OpenRequest | None:
        """Forget a request, and settle with its tenant.

        Args:
            reservation_id: Of a request that may have been closed before.
            usage: What was used, or None where nobody knows.
        """
        closed = self._open.pop(reservation_id, None)
        if closed is None:
            return None
        request, estimate = closed.request, closed.estimate
        self._by_class[request.priority] -= 1
        self.holdings.close(request.tenant, tokens=estimate.tokens)
        if usage is not None and closed.is_charged:
            closed.fairness.settle(
                request.tenant,
                prompt_tokens=_unread_beyond(estimate, usage),
                output_tokens=usage.output_tokens - closed.charged_output_tokens,
            )
        return closed

    def _charge(self, opened: OpenRequest, *, prompt_tokens: int, output_tokens: int) -> bool:
        tenant = opened.request.tenant
        return opened.fairness.charge(
            tenant,
            weight=self._tenants.of(tenant).weight,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )


def _unread_beyond(estimate: Estimate, usage: Usage) -> int:
    """Return prompt tokens that were read beyond those charged, negative where fewer were."""
    if usage.prompt_tokens and usage.cached_tokens is None:
        # What the cache spared it is not known better at its end than at its beginning.
        return 0
    return usage.prompt_tokens - (usage.cached_tokens or 0) - estimate.unread_tokens
