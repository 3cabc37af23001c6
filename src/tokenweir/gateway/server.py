"""How does the gateway start, serve and stop? Sockets of our own, uvicorn on them, signals here.

Stopping: ``/readyz`` turns false, newcomers and whoever waits are refused, running streams get a
bounded time, then they are ended and settled, and the process ends with nothing held.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from tokenweir.adapters.prometheus import PrometheusMetrics
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import s_from_ns
from tokenweir.gateway.admin import AdminApp
from tokenweir.gateway.app import GatewayApp
from tokenweir.gateway.exchange import Shared
from tokenweir.gateway.identities import identities_of
from tokenweir.gateway.interrupts import Cause, Watchdog
from tokenweir.gateway.pools import Pools
from tokenweir.gateway.protocol import protocol_of
from tokenweir.http.prompt_estimate import TokenRatios
from tokenweir.http.returning import Tickets
from tokenweir.ports.clock import monotonic_clock, wall_offset_ns
from tokenweir.settings.model import LimitSettings, Settings
from tokenweir.settings.secrets import ticket_keys

__all__ = ["Gateway", "bind"]

_BACKLOG = 4_096
# After the grace, for requests that were ended to say their last word.
_LAST_WORDS_S = 3.0
_TICKET_KEY_BYTES = 32

_logger = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket, not listening yet.

    Args:
        host: An address or a name of this machine.
        port: 0 for a free one.

    Raises:
        ConfigError: The port is taken, or the address is not ours.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    except ValueError:
        # What cannot be a name at all is not even looked up.
        raise ConfigError(
            f"cannot listen on {host!r}:{port}: not an address or a host name"
        ) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    bound.settimeout(0)
    return bound


class _Server(uvicorn.Server):
    """uvicorn without its signals: those are ours, and its own would end the process by one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


class Gateway:
    """The whole process but for its command line."""

    def __init__(
        self,
        settings: Settings,
        *,
        listener: socket.socket,
        admin_listener: socket.socket | None = None,
    ) -> None:
        """Prepare; the sockets are ours from now on.

        Args:
            settings: Checked.
            listener: For clients.
            admin_listener: For operators, or None.
        """
        self._settings = settings
        self._listener = listener
        self._admin_listener = admin_listener
        self._stop = asyncio.Event()
        self._shared: Shared | None = None

    async def serve(self, *, on_ready: Callable[[], None]) -> None:
        """Serve until ``stop`` is called or SIGTERM, SIGINT or SIGHUP arrives, then drain.

        Args:
            on_ready: Called once connections are accepted.
        """
        with self._signals():
            await self._serve(on_ready)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        metrics = PrometheusMetrics()
        pools = Pools(self._settings, metrics=metrics, clock=monotonic_clock)
        watchdog = Watchdog(monotonic_clock)
        self._shared = shared = Shared(
            pools=pools,
            limits=self._settings.limits,
            watchdog=watchdog,
            ratios=TokenRatios(),
            metrics=metrics,
            clock=monotonic_clock,
            ids=_request_ids(),
            tickets=_tickets(self._settings),
            identities=identities_of(self._settings),
        )
        app = GatewayApp(shared, shows_metrics=self._admin_listener is None)
        servers = [_server(app, self._settings.limits)]
        serving = [asyncio.create_task(servers[0].serve(sockets=[self._listener]))]
        if self._admin_listener is not None:
            servers.append(_server(AdminApp(shared, self._settings), self._settings.limits))
            serving.append(asyncio.create_task(servers[1].serve(sockets=[self._admin_listener])))
        watchdog.start()
        await pools.start()
        while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn has a flag only
            await asyncio.sleep(0.005)
        on_ready()
        await self._stop.wait()
        await self._drain(app, shared)
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*serving)
        watchdog.stop()
        await pools.stop()

    def stop(self) -> None:
        """Begin to stop; may be called again."""
        self._stop.set()

    async def _drain(self, app: GatewayApp, shared: Shared) -> None:
        app.is_draining = True
        drivers = shared.pools.drivers
        for driver in drivers:
            driver.begin_drain()
        grace_s = s_from_ns(shared.limits.drain)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*(driver.wait_idle() for driver in drivers))
        open_count = sum(driver.open_count() for driver in drivers)
        if open_count:
            _logger.warning("%d requests still ran after %.0f s: ended", open_count, grace_s)
        shared.watchdog.fire_all(Cause.SHUTDOWN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await shared.watchdog.wait_empty()

    def _toggle_bypass(self) -> None:
        """Switch into bypass, and from bypass back to what was before."""
        assert self._shared is not None
        for driver in self._shared.pools.drivers:
            driver.toggle_bypass()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on SIGTERM, SIGINT and SIGHUP, toggle bypass on SIGUSR1."""
        loop = asyncio.get_running_loop()
        actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if hasattr(signal, "SIGUSR1"):
            # A terminal that closes should not cut streams either.
            actions[signal.SIGHUP] = self.stop
            actions[signal.SIGUSR1] = self._toggle_bypass
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number in actions:
                loop.remove_signal_handler(number)


def _tickets(settings: Settings) -> Tickets:
    """Return what seals tickets, with the keys of the settings or one of this process alone."""
    keys = ticket_keys(settings.tickets, path="tickets")
    if not keys:
        return Tickets([secrets.token_bytes(_TICKET_KEY_BYTES)])
    return Tickets(keys, clock_offset_ns=wall_offset_ns())


def _request_ids() -> Iterator[str]:
    """Yield ids that neither this process nor another one has used."""
    prefix = secrets.token_hex(4)
    return (f"{prefix}-{number}" for number in itertools.count(1))


def _server(app: Any, limits: LimitSettings) -> _Server:
    protocol: Any = protocol_of(limits)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        loop="none",
        access_log=False,
        # A stream that is cut on purpose is an error to uvicorn; ours are logged by ourselves.
        log_config=None,
        log_level="critical",
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=2,
    )
    return _Server(config)
