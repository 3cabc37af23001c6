"""How is a decision told to the client, where the core's own word is not the whole of it?"""

from __future__ import annotations

import dataclasses

from tokenweir.core.decision import Reject
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import NS_PER_S
from tokenweir.driver.flight import Flight
from tokenweir.http.demand import Demand
from tokenweir.ports.events import UpstreamFault, Verdict

__all__ = ["REASON_OF_FAULT", "not_for_good", "verdict_of", "with_cause"]

# Some looks at an engine later its size is known again, or believed.
_STALE_SIZE_RETRY_NS = 5 * NS_PER_S

REASON_OF_FAULT = {
    UpstreamFault.UNREACHABLE: ReasonCode.UPSTREAM_UNREACHABLE,
    UpstreamFault.BROKEN: ReasonCode.UPSTREAM_BROKEN,
    UpstreamFault.BUSY: ReasonCode.ENGINE_BUSY,
}


def verdict_of(flight: Flight, demand: Demand) -> tuple[Verdict, ReasonCode]:
    """Return decision and reason of a request that is let in, as the client is told."""
    if flight.was_queued:
        return Verdict.QUEUE, ReasonCode.WAITING
    verdict = Verdict.DEGRADE if demand.is_lowered else Verdict.ADMIT
    return verdict, flight.admit.reason


def not_for_good(reject: Reject) -> Reject:
    """Let a refusal for good, by a size that may not be true any more, be one for now."""
    if reject.reason not in {ReasonCode.TOO_LARGE, ReasonCode.OUTPUT_MAX_TOO_LARGE}:
        return reject
    return dataclasses.replace(
        reject,
        reason=ReasonCode.OVERLOAD_KV,
        retry_after_ns=_STALE_SIZE_RETRY_NS,
        wait_ns=_STALE_SIZE_RETRY_NS,
    )


def with_cause(reject: Reject, earlier: UpstreamFault | None) -> Reject:
    """Let a refused second attempt tell what the first one met."""
    if earlier is UpstreamFault.BUSY:
        return dataclasses.replace(reject, reason=ReasonCode.ENGINE_BUSY)
    if earlier is not None and reject.reason is ReasonCode.NO_HEALTHY_REPLICA:
        return dataclasses.replace(reject, reason=REASON_OF_FAULT[earlier])
    return reject
