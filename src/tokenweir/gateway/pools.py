"""What stands behind the routes? One driver, its upstreams and its scraper per pool."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from tokenweir.adapters.aiohttp_upstream import AiohttpUpstream, open_session
from tokenweir.adapters.prometheus import PrometheusMetrics
from tokenweir.adapters.vllm import VllmTelemetry
from tokenweir.core.admitter import Admitter
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Priority
from tokenweir.core.units import ReplicaId
from tokenweir.driver.pool import PoolDriver
from tokenweir.driver.scraper import Scraper
from tokenweir.ports.clock import Clock
from tokenweir.ports.events import EventSink
from tokenweir.ports.upstream import Upstream
from tokenweir.settings.compose import (
    admitter_config,
    mode_of,
    pool_policy,
    pool_profile,
    replica_id,
    route_pool,
)
from tokenweir.settings.model import PoolSettings, RouteSettings, Settings, TimeoutSettings

__all__ = ["Pool", "Pools", "Route"]


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool at work.

    Attributes:
        driver: Decides.
        events: Counts.
        upstreams: Where its replicas are.
        scraper: Looks at them.
        timeouts: For them.
        limits: How much may wait before it, and how long.
        session: Of their connections.
        telemetries: What looks at the replicas, which also learns their context.
    """

    driver: PoolDriver
    events: EventSink
    upstreams: Mapping[ReplicaId, Upstream]
    scraper: Scraper
    timeouts: TimeoutSettings
    limits: QueueLimits
    session: aiohttp.ClientSession
    telemetries: Sequence[VllmTelemetry]

    @property
    def is_size_stale(self) -> bool:
        """Whether a replica's size is one that it has not repeated lately."""
        return any(telemetry.is_size_stale() for telemetry in self.telemetries)

    @property
    def context_tokens(self) -> int | None:
        """The smallest context of its replicas, None where none has told."""
        known = [t.context_tokens for t in self.telemetries if t.context_tokens is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests of a path, a model and a class go, and how much output they may ask for.

    What is None matches all.
    """

    pool: Pool
    output_tokens_max: int
    path: str | None
    model: str | None
    classes: frozenset[Priority] | None = None


class Pools:
    """All pools, and the routes to them."""

    def __init__(self, settings: Settings, *, metrics: PrometheusMetrics, clock: Clock) -> None:
        """Build them on the running loop; ``start`` sets them to work.

        Args:
            settings: Checked, relations too.
            metrics: Shows every pool.
            clock: Monotonic time.
        """
        self._pools = {
            pool.name: _build(pool, settings, metrics=metrics, clock=clock)
            for pool in settings.pools
        }
        self._routes = tuple(
            Route(
                pool=self._pools[route_pool(route, settings)],
                output_tokens_max=route.output_tokens_max,
                path=route.match.path if route.match else None,
                model=route.match.model if route.match else None,
                classes=_classes_of(route),
            )
            for route in settings.routes
        )

    @property
    def all(self) -> tuple[Pool, ...]:
        """All of them, in the order of the file."""
        return tuple(self._pools.values())

    @property
    def drivers(self) -> tuple[PoolDriver, ...]:
        """The drivers, in the order of the file."""
        return tuple(pool.driver for pool in self._pools.values())

    def route(self, path: str, model: str, *, priority: Priority = Priority.P1) -> Route:
        """Return the first route that matches; the last matches all."""
        for route in self._routes:
            if (
                route.path in (None, path)
                and route.model in (None, model)
                and (route.classes is None or priority in route.classes)
            ):
                return route
        raise LookupError("settings without a default route")

    async def start(self) -> None:
        """Look at every replica once, then decide, look and renew until ``stop``."""
        for pool in self._pools.values():
            pool.driver.start()
            await pool.scraper.look_once()
            pool.scraper.start()

    async def stop(self) -> None:
        """Stop looking and deciding, and close every connection."""
        for pool in self._pools.values():
            await pool.scraper.stop()
            pool.driver.stop()
            await pool.session.close()


def _build(
    pool: PoolSettings, settings: Settings, *, metrics: PrometheusMetrics, clock: Clock
) -> Pool:
    config = admitter_config(pool, tenants=settings.tenants)
    admitter = Admitter(pool_policy(pool), rng=random.Random(), config=config)
    admitter.mode = mode_of(settings)
    events = metrics.add_pool(pool.name)
    driver = PoolDriver(pool.name, admitter, clock=clock, events=events)
    metrics.watch(events, lambda: (driver.snapshot(), driver.refusal_counts()))
    session = open_session(connect_timeout_ns=pool.timeouts.connect)
    upstreams: dict[ReplicaId, Upstream] = {}
    telemetries: list[VllmTelemetry] = []
    for replica in pool.replicas:
        name = replica_id(replica)
        admitter.add_replica(name, kv_tokens=replica.kv_tokens, profile=pool_profile(pool))
        upstreams[name] = AiohttpUpstream(session, replica.url)
        telemetries.append(
            VllmTelemetry(
                name,
                upstreams[name],
                clock=clock,
                kv_tokens=replica.kv_tokens,
                timeout_ns=pool.scrape.timeout,
            )
        )
    scraper = Scraper(driver, telemetries, interval_ns=pool.scrape.interval)
    return Pool(
        driver,
        events,
        upstreams,
        scraper,
        timeouts=pool.timeouts,
        limits=config.queue,
        session=session,
        telemetries=telemetries,
    )


def _classes_of(route: RouteSettings) -> frozenset[Priority] | None:
    if route.match is None or route.match.classes is None:
        return None
    return frozenset(Priority[name] for name in route.match.classes)
