"""What does one decision cost?

Model: policy ``predictive`` on a profile with as many seats as requests are live, so that every
seat given back is taken by one that waits and both counts stay as they are. The pool is large
enough and the bounds wide enough that no test ends early: each looks at everything.
Rule: CPU time of this thread for arrive and settle; apart, for the ``advance`` after each, which
belongs to every other call too. Sizes are rounds in turn (A B A B), so that a machine that slows
down slows both.
Trade-off: reading the clock, some 0.3 us, is in each figure. Quotas are not: the core has none yet.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from time import thread_time_ns

from bench.figures import Figure, show
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.aimd import AimdConfig
from tokenweir.core.decision import Dispatch, Effect, Enqueue
from tokenweir.core.guards import GuardConfig
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.mode import Mode
from tokenweir.core.policy import policy
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.units import NS_PER_MS, NS_PER_S, ReplicaId, ReservationId
from tokenweir.profiles import profile

__all__ = ["Pool", "main"]

_TENANTS = 50
_GROWTH = 10
_WAIT_NS = 100_000 * NS_PER_S
_STEP_NS = 10 * NS_PER_MS
_REPLICA = ReplicaId("r1")


class Pool:
    """An admitter with so many live and so many waiting requests."""

    def __init__(self, name: str, *, live: int, queued: int) -> None:
        """Fill it."""
        self._rng = random.Random(1)
        self._now_ns = 0
        self._serial = 0
        self._live: dict[ReservationId, Request] = {}
        self.admitter = Admitter(
            policy("predictive"),
            rng=random.Random(2),
            config=AdmitterConfig(
                queue=QueueLimits(
                    items_max=queued + 2, wait_ns_max=_WAIT_NS, first_token_slo_ns=_WAIT_NS
                ),
                ledger=LedgerConfig(lease_ns=None),
                limit=AimdConfig(in_flight_min=live, in_flight_max=live),
                guards=GuardConfig(tpot_ns=_WAIT_NS),
                rate_hint_tokens_per_s=1e6,
            ),
        )
        engine = profile(name)
        engine = replace(
            engine, sequences_max=live, step_tokens_max=max(engine.step_tokens_max, 2 * live)
        )
        self.admitter.add_replica(_REPLICA, kv_tokens=live * 10_000, profile=engine)
        self.admitter.mode = Mode.BYPASS
        for _ in range(live):
            request = self._request()
            self.admitter.arrive(request, now_ns=self._now_ns)
            self._begin(request)
        self.admitter.mode = Mode.ENFORCE
        self._waiting: dict[str, Request] = {}
        for _ in range(queued):
            self._arrive(self._request())
        self._begun(self.admitter.advance(now_ns=self._now_ns))

    def decide(self) -> tuple[int, int, int]:
        """Let one arrive and another end; return ns of arrive, settle, and both advances."""
        self._now_ns += _STEP_NS
        request, now_ns, admitter = self._request(), self._now_ns, self.admitter
        ended = next(iter(self._live))
        usage = Usage(self._live.pop(ended).prompt_tokens, self._rng.randint(20, 400))
        t0 = thread_time_ns()
        decision = admitter.arrive(request, now_ns=now_ns)
        t1 = thread_time_ns()
        first = admitter.advance(now_ns=now_ns)
        t2 = thread_time_ns()
        admitter.settle(ended, usage, outcome=Outcome.FINISHED, now_ns=now_ns)
        t3 = thread_time_ns()
        second = admitter.advance(now_ns=now_ns)
        t4 = thread_time_ns()
        self._expect_waits(request, decision)
        self._begun((*first, *second))
        return t1 - t0, t3 - t2, (t2 - t1) + (t4 - t3)

    def counts(self) -> tuple[int, int]:
        """Return how many are live and how many wait."""
        return len(self._live), len(self._waiting)

    def _request(self) -> Request:
        self._serial += 1
        rng = self._rng
        return Request(
            f"q{self._serial}",
            prompt_tokens=rng.randint(50, 2_000),
            output_tokens_max=1_024,
            tenant=f"t{rng.randrange(_TENANTS)}",
        )

    def _arrive(self, request: Request) -> None:
        self._expect_waits(request, self.admitter.arrive(request, now_ns=self._now_ns))

    def _expect_waits(self, request: Request, decision: object) -> None:
        if not isinstance(decision, Enqueue):
            raise SystemExit(f"a request was to wait, and is {decision}")
        self._waiting[request.request_id] = request

    def _begin(self, request: Request) -> None:
        reservation_id = ReservationId(request.request_id)
        self._live[reservation_id] = request
        self.admitter.first_token(reservation_id, now_ns=self._now_ns)

    def _begun(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Dispatch):
                raise SystemExit(f"nothing but dispatches was to come, and it is {effect}")
            self._begin(self._waiting.pop(effect.ticket_id))


def _quantile_us(times_ns: Sequence[int], q: float) -> float:
    return sorted(times_ns)[min(len(times_ns) - 1, int(q * len(times_ns)))] / 1_000


def _measure(options: argparse.Namespace) -> list[Figure]:
    sizes = [(options.live * n, options.queued * n) for n in (1, _GROWTH)]
    pools = [Pool(options.profile, live=live, queued=queued) for live, queued in sizes]
    for pool in pools:
        for _ in range(options.decisions // 5):
            pool.decide()
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        row = {}
        for size, pool in enumerate(pools):
            times = [pool.decide() for _ in range(options.decisions)]
            both = [arrive + settle for arrive, settle, _ in times]
            row[f"p50-{size}"] = _quantile_us(both, 0.5)
            row[f"p99-{size}"] = _quantile_us(both, 0.99)
            for part, name in enumerate(("arrive", "settle", "advance")):
                row[f"{name}-{size}"] = _quantile_us([t[part] for t in times], 0.5)
        row["growth"] = row["p50-1"] / row["p50-0"]
        row["growth-advance"] = row["advance-1"] / row["advance-0"]
        rounds.append(row)

    def figure(key: str, name: str, *, unit: str = "us", target: float | None = None) -> Figure:
        return Figure(name, unit, target, tuple(row[key] for row in rounds))

    return [
        figure("p50-0", "arrive + settle, p50", target=60),
        figure("p99-0", "arrive + settle, p99", target=300),
        figure("growth", f"growth of p50 at {_GROWTH} x live and queued", unit="x", target=2),
        figure("arrive-0", "arrive, p50"),
        figure("settle-0", "settle, p50"),
        figure("advance-0", "the two advances, p50"),
        figure("p50-1", f"arrive + settle at {_GROWTH} x, p50"),
        figure("p99-1", f"arrive + settle at {_GROWTH} x, p99"),
        figure("growth-advance", "growth of the advances", unit="x"),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.decision", description="See the module.")
    parser.add_argument("--profile", default="8b-h100")
    parser.add_argument("--live", type=int, default=256)
    parser.add_argument("--queued", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=2_000, help="in each round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    title = (
        f"one decision, predictive on {options.profile}, {options.live:,} live, "
        f"{options.queued:,} queued, {_TENANTS} tenants, no quotas"
    )
    show(_measure(options), title=title, as_json=options.json)


if __name__ == "__main__":
    main()
