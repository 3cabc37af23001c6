"""What does a refused attempt cost its tenant?

Model: a refusal takes time to decide and, where retries follow, a place in everybody's estimate of
what is asked for, though no token is served. C = ``refusal_tokens``; m = ``refusals_max``.
Rule: each refused attempt charges its tenant C prompt tokens, whoever sent it; after m of them no
more is charged until a request of the tenant enters.
Properties: INV-FAIR-1 (between two of its requests that enter, a tenant pays for at most m
refusals). So refusals put a tenant back by m C units at most, however many there are, and its turn
comes; a flooder's requests cost it up to m C more than others', which is what it pays.
Trade-off: without the bound a tenant that retries fast enough would never be served again, by its
own doing or by that of a client library.
"""

from __future__ import annotations

from tokenweir.core.fairness.protocol import Fairness, FairnessConfig

__all__ = ["RefusalCharges"]


class RefusalCharges:
    """How many refusals each tenant has paid for since a request of it entered."""

    def __init__(self, config: FairnessConfig) -> None:
        """Start with nobody having been refused."""
        self._config = config
        # Ordered by last refusal, so that who was refused longest ago is forgotten first.
        self._paid: dict[str, int] = {}

    def note_refused(self, fairness: Fairness, tenant: str, *, weight: float) -> None:
        """Charge one refused attempt.

        Args:
            fairness: Whose counters are charged.
            tenant: Who sent it.
            weight: Its share against other tenants', above 0.
        """
        config = self._config
        paid = self._paid.get(tenant, 0)
        if config.refusal_tokens == 0 or paid >= config.refusals_max:
            return
        if not fairness.charge(
            tenant, weight=weight, prompt_tokens=config.refusal_tokens, output_tokens=0
        ):
            return
        self._paid.pop(tenant, None)
        self._paid[tenant] = paid + 1
        if len(self._paid) > config.tenants_max:
            del self._paid[next(iter(self._paid))]

    def note_entered(self, tenant: str) -> None:
        """Let a tenant pay anew: a request of it enters."""
        if self._paid:
            self._paid.pop(tenant, None)

    def __len__(self) -> int:
        """Count the tenants that have paid since they last entered."""
        return len(self._paid)
