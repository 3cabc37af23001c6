"""Which settings are there? The one YAML file, section by section, with defaults and ranges.

What belongs to a part of the core is checked by that part; here are names, types and units.
Durations are in nanoseconds once read.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.fairness import FAIRNESS
from tokenweir.core.lengths import LengthMode
from tokenweir.core.policy import DEFAULT_POLICY
from tokenweir.core.queues import ORDERINGS
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.settings.classes import ClassesSettings
from tokenweir.settings.quantities import ByteCount, Duration, Magnitude
from tokenweir.settings.secrets import TicketSettings
from tokenweir.settings.section import Name, Section, row_of
from tokenweir.settings.tenants import TenantSettings

__all__ = [
    "AdminSettings",
    "AdmittedPath",
    "LimitSettings",
    "ListenSettings",
    "MatchSettings",
    "PoolSettings",
    "QueueSettings",
    "ReplicaSettings",
    "RouteSettings",
    "Settings",
    "TimeoutSettings",
]


# What RFC 3986 lets stand in a URL as it is.
_URL = re.compile(r"[A-Za-z0-9._~:/\[\]@!$&'()*+,;=%?#-]+")
_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_HOST_CHARS_MAX = 253


def _http_url(value: str) -> str:
    try:
        # urlsplit itself drops line ends and more from what it is given.
        parts = urlsplit(value if _URL.fullmatch(value) else "")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_good = parts.scheme in {"http", "https"} and _is_host(parts.hostname or "") and port != 0
    if not is_good or "?" in value or "#" in value or "@" in parts.netloc:
        raise ValueError("a URL such as http://127.0.0.1:8000, without query or user")
    # People copy the base URL of a client, which ends in /v1; our paths begin with it.
    return value.rstrip("/").removesuffix("/v1")


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.removesuffix(".").split(".")
        return len(name) <= _HOST_CHARS_MAX and all(map(_HOST_LABEL.fullmatch, labels))
    return True


def _loopback(value: str) -> str:
    try:
        is_loopback = ipaddress.ip_address(value).is_loopback
    except ValueError:
        is_loopback = value == "localhost"
    if not is_loopback:
        raise ValueError("a loopback address, since the admin listener asks for no credential")
    return value


HttpUrl = Annotated[str, AfterValidator(_http_url)]
Port = Annotated[int, Field(ge=0, le=65_535, strict=True)]


class ListenSettings(Section):
    """Where clients connect.

    Attributes:
        host: Address to bind; loopback by default, so that nothing is public by accident.
        port: 0 takes a free one, which is printed.
    """

    host: str = "127.0.0.1"
    port: Port = 8080


class AdminListenSettings(Section):
    """Where operators connect: loopback only."""

    host: Annotated[str, AfterValidator(_loopback)] = "127.0.0.1"
    port: Port = 8081


class AdminSettings(Section):
    """The admin side.

    Attributes:
        listen: Its own listener; without one there is no ``/admin``, and ``/metrics`` stands on the
            main listener.
    """

    listen: AdminListenSettings | None = None


class ReplicaSettings(Section):
    """One engine or provider.

    Attributes:
        url: Its base URL, without ``/v1``.
        name: In metrics and logs; host and port where it is not given.
        kv_tokens: Size of its KV cache in tokens; else its own metrics tell, and where they do not
            either, a careful number of concurrent requests takes the place of tokens.
    """

    url: HttpUrl
    name: Name | None = None
    kv_tokens: Annotated[Magnitude, Field(ge=1)] | None = None


class QueueSettings(Section):
    """How much may wait in front of a pool.

    Attributes:
        items: Requests, 0 to refuse at once what does not fit.
        wait: Longest wait.
        debt: Tokens of all that wait, no bound of its own by default.
        backfill: How many may be asked to pass a head that waits for KV, 0 for none.
    """

    items: Magnitude = 1_000
    wait: Duration = 5 * NS_PER_S
    debt: Magnitude | None = None
    backfill: Magnitude = 0


class TimeoutSettings(Section):
    """How long is waited for an upstream.

    Attributes:
        connect: For a connection.
        first_byte: From sending to the first byte of a streamed answer.
        idle: Between two pieces of an answer.
        total: For an answer that is not streamed; as long as the common SDKs wait.
    """

    connect: Duration = 5 * NS_PER_S
    first_byte: Duration = 120 * NS_PER_S
    idle: Duration = 60 * NS_PER_S
    total: Duration = 600 * NS_PER_S


class ScrapeSettings(Section):
    """How replicas are looked at.

    Attributes:
        interval: From one look to the next; 1 s is what the staleness of telemetry is built on.
        timeout: Longest wait for one page.
    """

    interval: Annotated[Duration, Field(ge=100 * NS_PER_MS)] = NS_PER_S
    timeout: Annotated[Duration, Field(ge=50 * NS_PER_MS)] = NS_PER_S


class PoolSettings(Section):
    """Replicas that serve the same models, behind one queue.

    Attributes:
        name: As routes name it.
        replicas: At least one.
        policy: A row of the table of policies.
        profile: How fast its engines are, a profile's name or file (a relative path starts where
            the gateway was started); with it the policy ``predictive`` also keeps the pace and
            predicts how long prompts need.
        concurrency: Requests in flight per replica, for the policies ``concurrency`` and ``aimd``,
            which never rises above it.
        length_mode: What the policy ``predictive`` takes an answer's length to be: ``sampled`` is
            right in the sum of many, ``conformal`` covers nine of ten, ``declared`` is the declared
            maximum, so that the engine never has to preempt.
        queue: How much may wait.
        ordering: In which order one tenant's waiting requests enter.
        fairness: Whose turn it is among a class's tenants.
        classes: What each class may take, and how long it may wait.
        paced_returns: Whether refused clients are told times that pace their returns, and retries
            have a budget; else each is told the predicted wait alone.
        first_token_slo: Where given, what would wait longer than half of it is refused; where the
            profile is given too, what could not have its first token in nine tenths of it.
        timeouts: For its upstreams.
        scrape: Of its replicas.
    """

    name: Name = "default"
    replicas: Annotated[tuple[ReplicaSettings, ...], Field(min_length=1, max_length=256)]
    policy: str = DEFAULT_POLICY
    profile: str | None = None
    concurrency: Annotated[Magnitude, Field(ge=1)] | None = None
    length_mode: LengthMode | None = None
    queue: QueueSettings = QueueSettings()
    ordering: Annotated[str, AfterValidator(row_of(ORDERINGS))] = AdmitterConfig().ordering
    fairness: Annotated[str, AfterValidator(row_of(FAIRNESS))] = AdmitterConfig().fairness
    classes: ClassesSettings = ClassesSettings()
    paced_returns: bool = True
    first_token_slo: Duration | None = None
    timeouts: TimeoutSettings = TimeoutSettings()
    scrape: ScrapeSettings = ScrapeSettings()


AdmittedPath: TypeAlias = Literal[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
]


class MatchSettings(Section):
    """What a route takes; what is left out matches all.

    Attributes:
        path: One of the paths that are admitted.
        model: The model's name as clients send it.
        classes: Classes, as granted to the tenant; so that batch work has a pool of its own.
    """

    path: AdmittedPath | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    classes: Annotated[tuple[Literal["P0", "P1", "P2", "P3"], ...], Field(min_length=1)] | None = (
        None
    )


class RouteSettings(Section):
    """Which requests go to which pool, and what they may ask for. The first that matches is taken.

    Attributes:
        match: Nothing for the default route, of which there is exactly one, the last.
        pool: A pool's name; the only pool where there is one.
        output_tokens_max: Per answer. A missing or larger maximum is clamped to it, and together
            with the prompt it must fit the model's context, or the engine refuses it.
    """

    match: MatchSettings | None = None
    pool: str | None = None
    output_tokens_max: Annotated[Magnitude, Field(ge=1)] = 4_096


class LimitSettings(Section):
    """What the gateway itself bears.

    Attributes:
        body: Largest request body.
        connections: Requests under way at once, waiting ones included.
        body_timeout: Longest time for a client to send its body.
        client_stall: Longest time that a client may refuse to take its answer.
        drain: How long running streams may go on after a signal to stop.
    """

    body: Annotated[ByteCount, Field(ge=1)] = 8 << 20
    connections: Annotated[Magnitude, Field(ge=1)] = 10_000
    body_timeout: Duration = 30 * NS_PER_S
    client_stall: Duration = 60 * NS_PER_S
    drain: Duration = 30 * NS_PER_S


class Settings(Section):
    """The whole file.

    Attributes:
        listen: Where clients connect.
        admin: Where operators connect.
        pools: At least one.
        routes: The default route alone where none is given.
        tenants: Who shares the pools; one tenant, ``default``, where none is given.
        tickets: What seals return tickets.
        observe: Decide and record, but refuse nothing.
        bypass: Do not even decide.
        limits: What the gateway itself bears.
    """

    listen: ListenSettings = ListenSettings()
    admin: AdminSettings = AdminSettings()
    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1, max_length=64)]
    routes: tuple[RouteSettings, ...] = (RouteSettings(),)
    tenants: Annotated[tuple[TenantSettings, ...], Field(max_length=10_000)] = ()
    tickets: TicketSettings = TicketSettings()
    observe: bool = False
    bypass: bool = False
    limits: LimitSettings = LimitSettings()
