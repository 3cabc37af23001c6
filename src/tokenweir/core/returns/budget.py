"""How many retries that nobody paced are let through?

Model: per tenant, seconds of a sliding window (10 s); A = tokens of first attempts admitted in it;
S and n = tokens and number of retries let through in it.
Rule: a retry of c tokens passes if n < 1/s x window, or S + c <= 0.10 A. What passes is charged at
once, served or not: a client that asks again and again uses up its tenant's budget, not the pool.
Properties: INV-RETRY-1 (in any window, retries let through are fewer than the minimum, or at most
the fraction of first attempts admitted).
Trade-off: a share per tenant, so that one tenant's storm costs others nothing; tenants beyond the
bound are forgotten, the quietest first, and start afresh.
Source: retry budgets of RPC frameworks (a ratio and a minimum over a window); after them, one layer
bounds its retries to a tenth of its requests.
"""

from __future__ import annotations

from collections import OrderedDict

from tokenweir.core.returns.config import ReturnConfig
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["RetryBudget"]


class RetryBudget:
    """What each tenant's retries may use."""

    def __init__(self, config: ReturnConfig) -> None:
        """Start with no first attempt seen."""
        self.config = config
        # The one heard of last stands last.
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        """Count the tenants that are remembered."""
        return len(self._windows)

    def note_first(self, tenant: str, cost_tokens: int, *, now_ns: Nanos) -> None:
        """Count a first attempt that was admitted."""
        self._window(tenant, now_ns).add(cost_tokens, column=_ADMITTED)

    def allows(self, tenant: str, cost_tokens: int, *, now_ns: Nanos) -> bool:
        """Tell whether a retry may pass now; changes no budget."""
        config = self.config
        window = self._windows.get(tenant)
        if window is None:
            return config.budget_min_rps > 0
        window.roll(now_ns)
        if window.sums[_RETRIES] < config.budget_min_rps * config.budget_window_s:
            return True
        spent = window.sums[_SPENT] + cost_tokens
        return spent <= config.budget_fraction * window.sums[_ADMITTED]

    def charge(self, tenant: str, cost_tokens: int, *, now_ns: Nanos) -> None:
        """Charge a retry that passes."""
        window = self._window(tenant, now_ns)
        window.add(cost_tokens, column=_SPENT)
        window.add(1, column=_RETRIES)

    def _window(self, tenant: str, now_ns: Nanos) -> _Window:
        windows = self._windows
        window = windows.get(tenant)
        if window is None:
            if len(windows) >= self.config.tenants_max:
                windows.popitem(last=False)
            window = windows[tenant] = _Window(self.config.budget_window_s)
        else:
            windows.move_to_end(tenant)
        window.roll(now_ns)
        return window


_ADMITTED, _SPENT, _RETRIES = range(3)


class _Window:
    """Three sums over the last seconds."""

    __slots__ = ("bins", "second", "sums")

    def __init__(self, seconds: int) -> None:
        self.bins = [[0, 0, 0] for _ in range(seconds)]
        self.sums = [0, 0, 0]
        self.second: int | None = None

    def add(self, amount: int, *, column: int) -> None:
        assert self.second is not None
        self.bins[self.second % len(self.bins)][column] += amount
        self.sums[column] += amount

    def roll(self, now_ns: Nanos) -> None:
        second = now_ns // NS_PER_S
        if self.second is None:
            self.second = second
        size = len(self.bins)
        for step in range(1, min(second - self.second, size) + 1):
            gone = self.bins[(self.second + step) % size]
            for column, amount in enumerate(gone):
                self.sums[column] -= amount
                gone[column] = 0
        self.second = second
