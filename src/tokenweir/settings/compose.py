"""What does a pool's section mean to the core? Its own objects, checked by themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.cost import Predicted
from tokenweir.core.errors import ConfigError
from tokenweir.core.mode import Mode
from tokenweir.core.policy import POLICIES, Policy, policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.units import ReplicaId
from tokenweir.profiles import profile
from tokenweir.settings.classes import class_limits
from tokenweir.settings.model import PoolSettings, ReplicaSettings, RouteSettings, Settings
from tokenweir.settings.secrets import ticket_keys
from tokenweir.settings.tenants import (
    TenantSettings,
    check_tenants,
    tenant_config,
    tenants_by_key,
)

__all__ = [
    "admitter_config",
    "check_relations",
    "mode_of",
    "pool_policy",
    "pool_profile",
    "replica_id",
    "route_pool",
]

_OVERLAPPING_HOSTS = frozenset({"", "0.0.0.0", "::", "localhost"})


def check_relations(settings: Settings, *, source: str, reads_secrets: bool = True) -> None:
    """Check what no section can see alone: names, references and the core's own ranges.

    Args:
        settings: Each section of it is right by itself.
        source: The file's name, for messages.
        reads_secrets: Whether keys have to be where the file says.

    Raises:
        ConfigError: The first mistake, in one line with its path.
    """
    _check_listeners(settings, source=source)
    names: set[str] = set()
    for index, pool in enumerate(settings.pools):
        path = f"{source}: pools[{index}]"
        if pool.name in names:
            raise ConfigError(f"{path}.name is {pool.name!r}, which another pool is called already")
        names.add(pool.name)
        with _located(f"{path}.policy"):
            pool_policy(pool)
        with _located(f"{path}.profile"):
            pool_profile(pool)
        with _located(f"{path}.classes"):
            class_limits(pool.classes)
        with _located(f"{path}.queue"):
            admitter_config(pool)
        _check_replicas(pool, path=path)
    for index, route in enumerate(settings.routes):
        path = f"{source}: routes[{index}]"
        if route.pool is None and len(settings.pools) > 1:
            raise ConfigError(f"{path}.pool is missing, allowed: {', '.join(sorted(names))}")
        if route.pool is not None and route.pool not in names:
            raise ConfigError(f"{path}.pool is {route.pool!r}, allowed: {', '.join(sorted(names))}")
    _check_default_route(settings, source=source)
    check_tenants(settings.tenants, path=f"{source}: tenants")
    _check_length_modes(settings, source=source)
    if reads_secrets:
        tenants_by_key(settings.tenants, path=f"{source}: tenants")
        ticket_keys(settings.tickets, path=f"{source}: tickets")
    if settings.observe and settings.bypass:
        raise ConfigError(f"{source}: bypass is true, allowed: false while observe is true")


def pool_policy(pool: PoolSettings) -> Policy:
    """Return the pool's policy.

    Raises:
        ConfigError: There is no such policy, or limit or length mode do not belong to it.
    """
    named = policy(pool.policy, length_mode=pool.length_mode)
    if pool.concurrency is None:
        return named
    if not isinstance(named.capacity, Concurrency):
        raise ConfigError(
            f"concurrency {pool.concurrency} does not belong to policy {pool.policy!r}, "
            "allowed: policies concurrency and aimd"
        )
    return dataclasses.replace(named, capacity=Concurrency(in_flight_max=pool.concurrency))


def pool_profile(pool: PoolSettings) -> EngineProfile | None:
    """Return how fast the pool's engines are, None where nothing is said.

    Raises:
        ConfigError: There is no such profile.
    """
    return None if pool.profile is None else profile(pool.profile)


def admitter_config(
    pool: PoolSettings, *, tenants: Sequence[TenantSettings] = ()
) -> AdmitterConfig:
    """Return the settings of the pool's admitter.

    Args:
        pool: The pool.
        tenants: Who shares it.

    Raises:
        ConfigError: A value is out of the core's range.
    """
    return AdmitterConfig(
        queue=QueueLimits(
            items_max=pool.queue.items,
            debt_tokens_max=pool.queue.debt,
            wait_ns_max=pool.queue.wait,
            first_token_slo_ns=pool.first_token_slo,
            classes=class_limits(pool.classes),
            backfill_max=pool.queue.backfill,
        ),
        fairness=pool.fairness,
        ordering=pool.ordering,
        tenants=tenant_config(tenants),
        returns=ReturnConfig() if pool.paced_returns else None,
    )


def mode_of(settings: Settings) -> Mode:
    """Return the mode to start in."""
    if settings.bypass:
        return Mode.BYPASS
    return Mode.OBSERVE if settings.observe else Mode.ENFORCE


def replica_id(replica: ReplicaSettings) -> ReplicaId:
    """Return a replica's name: its own, or host and port."""
    return ReplicaId(replica.name or urlsplit(replica.url).netloc)


def route_pool(route: RouteSettings, settings: Settings) -> str:
    """Return the name of the pool that a route leads to."""
    return route.pool or settings.pools[0].name


def _check_listeners(settings: Settings, *, source: str) -> None:
    listen, admin = settings.listen, settings.admin.listen
    if admin is None or listen.port == 0 or listen.port != admin.port:
        return
    # Two addresses may share a port, unless one of them is another name for the other.
    hosts = {listen.host, admin.host}
    if len(hosts) == 1 or hosts & _OVERLAPPING_HOSTS:
        raise ConfigError(
            f"{source}: admin.listen.port is {admin.port}, which is the port of listen, "
            "allowed: another port"
        )


def _check_replicas(pool: PoolSettings, *, path: str) -> None:
    seen: set[ReplicaId] = set()
    for index, replica in enumerate(pool.replicas):
        name = replica_id(replica)
        if name in seen:
            raise ConfigError(
                f"{path}.replicas[{index}] is {name!r}, which another replica is called already, "
                "allowed: a url and name of its own"
            )
        seen.add(name)


def _check_default_route(settings: Settings, *, source: str) -> None:
    """Let every request have a route: the last one, and no other, matches all."""
    defaults = [i for i, route in enumerate(settings.routes) if not _has_match(route)]
    last = len(settings.routes) - 1
    if defaults != [last]:
        raise ConfigError(
            f"{source}: routes has its default route (one without match) at {defaults or 'none'}, "
            f"allowed: exactly one, the last"
        )


def _check_length_modes(settings: Settings, *, source: str) -> None:
    """Let no tenant be promised what no pool keeps."""
    if any(isinstance(pool_policy(pool).cost, Predicted) for pool in settings.pools):
        return
    for index, tenant in enumerate(settings.tenants):
        if tenant.length_mode is not None:
            rows = ", ".join(row for row in POLICIES if POLICIES[row][1] == "predicted")
            raise ConfigError(
                f"{source}: tenants[{index}].length_mode is {tenant.length_mode!r}, "
                f"allowed: where a pool has the policy {rows}"
            )


def _has_match(route: RouteSettings) -> bool:
    match = route.match
    return match is not None and (match.path, match.model, match.classes) != (None, None, None)


@contextmanager
def _located(path: str) -> Iterator[None]:
    """Put a path in front of what the core says of a value."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
