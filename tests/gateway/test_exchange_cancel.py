"""A request stopped at any of its awaits leaves nothing held, whoever stops it."""

import asyncio
import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tokenweir.adapters.prometheus import PrometheusMetrics
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.policy import policy
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.units import ReplicaId
from tokenweir.driver.flight import Flight
from tokenweir.driver.pool import PoolDriver
from tokenweir.gateway.exchange import Exchange, Shared
from tokenweir.gateway.interrupts import Cause, Watchdog
from tokenweir.gateway.pools import Route
from tokenweir.http.identity import Identities, Identity
from tokenweir.http.paths.chat import CHAT as CHAT_FORM
from tokenweir.http.prompt_estimate import TokenRatios
from tokenweir.http.returning import Tickets
from tokenweir.ports.clock import monotonic_clock
from tokenweir.ports.upstream import Headers, UpstreamBroken, UpstreamUnreachable
from tokenweir.settings.model import LimitSettings, TimeoutSettings

REPLICA = ReplicaId("one")
# More turns of the loop than any of these requests needs.
TURNS = 45

EVENT = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
PLAIN = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


class Response:
    """An answer that takes a turn of the loop for every piece."""

    def __init__(self, chunks: Sequence[bytes], *, content_type: bytes, breaks: bool) -> None:
        self.status = 200
        self.headers: Headers = [(b"content-type", content_type)]
        self.is_closed = False
        self._chunks = iter(chunks)
        self._breaks = breaks

    async def next_chunk(self) -> bytes:
        await asyncio.sleep(0)
        chunk = next(self._chunks, b"")
        if not chunk and self._breaks:
            raise UpstreamBroken("cut")
        return chunk

    def close(self) -> None:
        self.is_closed = True


class Upstream:
    """Answers by its kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.responses: list[Response] = []

    async def send(
        self, method: str, target: str, *, headers: Headers, body: bytes | None
    ) -> Response:
        await asyncio.sleep(0)
        if self.kind == "unreachable":
            raise UpstreamUnreachable("refused")
        is_plain = self.kind == "plain"
        response = Response(
            [PLAIN] if is_plain else [EVENT, EVENT[:20], EVENT[20:], LAST],
            content_type=b"application/json" if is_plain else b"text/event-stream",
            breaks=self.kind == "breaks",
        )
        if self.kind == "busy":
            response.status = 503
        self.responses.append(response)
        return response


class Bench:
    """A gateway's inside without sockets."""

    def __init__(
        self,
        kind: str,
        *,
        config: AdmitterConfig | None = None,
        in_flight_max: int = 2,
        driver: type[PoolDriver] = PoolDriver,
    ) -> None:
        config = config or AdmitterConfig(ledger=LedgerConfig(abort_time_ns=0))
        capacity = Concurrency(in_flight_max=in_flight_max)
        few = dataclasses.replace(policy("concurrency"), capacity=capacity)
        self.core = Admitter(few, rng=random.Random(3), config=config)
        self.core.add_replica(REPLICA)
        metrics = PrometheusMetrics()
        events = metrics.add_pool("p")
        self.driver = driver("p", self.core, clock=monotonic_clock, events=events)
        self.upstream = Upstream(kind)
        pool: Any = _Pool(self.driver, events, {REPLICA: self.upstream})
        pools: Any = _Pools(Route(pool, output_tokens_max=100, path=None, model=None))
        self.watchdog = Watchdog(monotonic_clock)
        self.shared = Shared(
            pools=pools,
            limits=LimitSettings(),
            watchdog=self.watchdog,
            ratios=TokenRatios(),
            metrics=metrics,
            clock=monotonic_clock,
            ids=(str(number) for number in itertools.count()),
            tickets=Tickets([b"k" * 32]),
            identities=Identities({}, others=Identity("default")),
        )
        self.left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []

    async def run(self) -> None:
        """One request, each of whose awaits takes a turn of the loop."""
        body = json.dumps({"messages": [], "stream": self.upstream.kind != "plain"}).encode()
        halves = iter([(body[:9], True), (body[9:], False)])

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            part = next(halves, None)
            if part is None or self.left.is_set():
                await self.left.wait()
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part[0], "more_body": part[1]}

        async def send(message: Any) -> None:
            await asyncio.sleep(0)
            self.sent.append(message)

        scope = {"headers": [], "path": "/v1/chat/completions", "query_string": b""}
        await Exchange(self.shared, CHAT_FORM, scope=scope, receive=receive, send=send).run()

    def check_empty(self) -> None:
        """Nothing is held, queued, watched or open."""
        self.core.check_invariants()
        snapshot = self.driver.snapshot()
        assert snapshot.used_tokens == 0
        assert snapshot.accounts[0].in_flight == 0
        assert snapshot.queued == 0
        assert self.driver.open_count() == 0
        assert len(self.watchdog) == 0
        assert all(response.is_closed for response in self.upstream.responses)


class _Pool:
    def __init__(self, driver: PoolDriver, events: Any, upstreams: Any) -> None:
        self.driver = driver
        self.events = events
        self.upstreams = upstreams
        self.timeouts = TimeoutSettings()
        self.context_tokens = None
        self.is_size_stale = False
        self.limits = QueueLimits()


class _Pools:
    def __init__(self, route: Route) -> None:
        self._route = route

    def route(self, path: str, model: str, *, priority: Priority) -> Route:
        return self._route


Stop = Callable[[Bench, "asyncio.Task[None]"], object]
STOPS: dict[str, Stop] = {
    "client leaves": lambda bench, _: bench.left.set(),
    "limit passes": lambda bench, _: bench.watchdog.fire_all(Cause.FIRST_BYTE_TIMEOUT),
    "shutdown": lambda bench, _: bench.watchdog.fire_all(Cause.SHUTDOWN),
    "server cancels": lambda _, task: task.cancel(),
    "client leaves twice over": lambda bench, task: (bench.left.set(), task.cancel()),
}


@pytest.mark.parametrize("kind", ["stream", "plain", "breaks", "busy", "unreachable"])
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.replace(" ", "-"))
async def test_request_when_stopped_at_any_await_then_nothing_is_held(
    kind: str, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every single turn of the loop, for every kind of upstream and every cause."""
    monkeypatch.setattr("tokenweir.gateway.exchange._BUSY_PAUSE_S", 0)
    for turns in range(TURNS):
        bench = Bench(kind)
        task = asyncio.create_task(bench.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        STOPS[stop](bench, task)
        bench.left.set()
        await ended(task)
        bench.check_empty()


@pytest.mark.parametrize("kind", ["stream", "plain", "breaks", "busy", "unreachable"])
async def test_request_when_not_stopped_then_answered_and_nothing_is_held(kind: str) -> None:
    """The same requests to their own end."""
    bench = Bench(kind)
    async with asyncio.timeout(5):
        await bench.run()
    status = bench.sent[0]["status"]
    expected = {"stream": 200, "plain": 200, "breaks": 200, "busy": 429, "unreachable": 503}
    assert status == expected[kind]
    bench.check_empty()


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.replace(" ", "-"))
async def test_request_when_stopped_in_the_queue_then_its_place_is_given_up(stop: str) -> None:
    """Also in the very turn in which it is dispatched."""
    has_waited = False
    for turns in range(12):
        for is_freed in (False, True):
            bench = Bench("stream")
            holders = [await held(bench, index) for index in range(2)]
            task = asyncio.create_task(bench.run())
            for _ in range(turns):
                await asyncio.sleep(0)
            has_waited |= bench.driver.snapshot().queued == 1
            if is_freed:
                holders.pop().settle(Usage(1, 1), outcome=Outcome.FINISHED)
            STOPS[stop](bench, task)
            bench.left.set()
            await ended(task)
            for holder in holders:
                holder.settle(Usage(1, 1), outcome=Outcome.FINISHED)
            bench.check_empty()
    assert has_waited


async def ended(task: "asyncio.Task[None]") -> None:
    """Wait until a request is over; it may be cancelled, but it raises nothing."""
    await asyncio.wait([task], timeout=5)
    assert task.done()
    assert task.cancelled() or task.exception() is None


async def held(bench: Bench, index: int) -> Flight:
    """One of the requests that fill the pool."""
    flight = await bench.driver.admit(Request(f"held-{index}", 10, 10))
    assert isinstance(flight, Flight)
    return flight
