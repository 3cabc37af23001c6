"""How is a load kept open-loop? Every request is sent when it is due, whatever others wait for.

The only brake is a cap on requests in flight, which protects this machine: a request that comes due
above it fails at once and the report says so. Retries belong to the request they repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.sim.clients import RETRIES_MAX
from tokenweir.study.load.attempt import Fate, LoadAttempt, chat_body, send_once
from tokenweir.study.load.plan import PlannedRequest
from tokenweir.study.load.retrying import RETRIES_DEFAULT, is_retried, retry_delay_s
from tokenweir.study.prompts import PromptLibrary

__all__ = ["IN_FLIGHT_MAX", "LoadRun", "LoadTarget", "open_session", "probe_model"]

IN_FLIGHT_MAX = 2_000

_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where the load goes and how its clients behave.

    Attributes:
        url: Base address, without ``/v1``.
        model: Name in the bodies, or None for the first one the server lists.
        timeout_s: A client gives up when nothing comes for so long, above 0.
        retries: After the first attempt, 0 to ``RETRIES_MAX``.
        api_key: Sent as bearer, printable.
    """

    url: str
    model: str | None = None
    timeout_s: float = 600.0
    retries: int = RETRIES_DEFAULT
    api_key: str = "load"

    def __post_init__(self) -> None:
        """Check address and ranges."""
        if not _is_base_address(self.url):
            raise ConfigError(
                f"url {self.url!r} is not allowed, allowed: http://HOST:PORT or https://HOST, "
                "followed by nothing or /v1"
            )
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("this api key is not allowed, allowed: printable ASCII characters")
        if self.model is not None and not self.model.isprintable():
            raise ConfigError(f"model {self.model!a} is not allowed, allowed: printable characters")
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout {self.timeout_s:g} s is not allowed, allowed: above 0")
        if not 0 <= self.retries <= RETRIES_MAX:
            raise ConfigError(f"retries {self.retries} is not allowed, allowed: 0 to {RETRIES_MAX}")


def _is_base_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # The port of http://host:x and the labels of a..b are looked at only when asked for.
        is_reachable = parts.port != 0 and bool((parts.hostname or "").encode("idna"))
    except ValueError:
        return False
    return (
        is_reachable
        and url.isprintable()
        and " " not in url
        and parts.scheme in ("http", "https")
        and parts.path.rstrip("/") in ("", "/v1")
        and not any((parts.query, parts.fragment, parts.username, parts.password))
    )


def open_session(target: LoadTarget) -> aiohttp.ClientSession:
    """Return a session for the target; the caller closes it."""
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=min(_CONNECT_S, target.timeout_s),
        sock_read=target.timeout_s,
    )
    return aiohttp.ClientSession(
        target.url.rstrip("/").removesuffix("/v1").rstrip("/"),
        connector=aiohttp.TCPConnector(limit=0),
        timeout=timeout,
        headers={
            "Authorization": f"Bearer {target.api_key}",
            "Content-Type": "application/json",
        },
        auto_decompress=False,
    )


async def probe_model(session: aiohttp.ClientSession, target: LoadTarget) -> str:
    """Return the model to ask for, after seeing that the server answers at all.

    Raises:
        ConfigError: Nothing answers at the address.
    """
    timeout = aiohttp.ClientTimeout(total=_CONNECT_S)
    listed = None
    try:
        async with session.get("/v1/models", timeout=timeout) as response:
            if response.status == 200:
                with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
                    listed = str((await response.json(content_type=None))["data"][0]["id"])
    except (aiohttp.ClientError, OSError, ValueError) as exc:
        reason = str(exc) or type(exc).__name__
        raise ConfigError(f"{target.url} cannot be reached: {reason}") from exc
    return target.model or listed or "emulated"


@dataclass(slots=True)
class LoadRun:
    """One run and what it has measured so far.

    Attributes:
        plan: What to send, in order of time.
        attempts: In order of arrival.
        sent: Unique requests that have come due.
        in_flight: Unique requests not yet served or given up.
        in_flight_max: The cap on that.
        capped: Requests that failed because of the cap.
        lag_ns_max: How late the latest request was sent.
        span_ns: Length of the run so far; final once it has ended.
    """

    plan: Sequence[PlannedRequest]
    retries: int
    library: PromptLibrary
    model: str
    seed: int = 1
    in_flight_max: int = IN_FLIGHT_MAX
    attempts: list[LoadAttempt] = field(default_factory=list)
    sent: int = 0
    in_flight: int = 0
    capped: int = 0
    lag_ns_max: Nanos = 0
    span_ns: Nanos = 0
    _start_ns: Nanos = 0

    async def run(
        self, session: aiohttp.ClientSession, *, stop: asyncio.Event, drain_s: float
    ) -> bool:
        """Send everything, or until ``stop`` is set; returns whether it came to its end.

        Args:
            session: From ``open_session``.
            stop: Ends arrivals and cuts what is in flight.
            drain_s: How long to wait for answers after the last arrival before cutting them.
        """
        self._start_ns = time.monotonic_ns()
        tasks: set[asyncio.Task[None]] = set()
        sending = asyncio.create_task(self._send_all(session, tasks=tasks))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((sending, stopping), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            if tasks and not stop.is_set():
                draining = asyncio.create_task(_all_done(tasks))
                await asyncio.wait(
                    (draining, stopping), timeout=drain_s, return_when=asyncio.FIRST_COMPLETED
                )
                draining.cancel()
        finally:
            rest = [sending, stopping, *tasks]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            self.span_ns = self._now_ns()
        return not stop.is_set()

    def elapsed_s(self) -> float:
        """Return seconds since the run began."""
        return s_from_ns(self._now_ns()) if self._start_ns else 0.0

    def _now_ns(self) -> Nanos:
        return time.monotonic_ns() - self._start_ns

    async def _send_all(
        self, session: aiohttp.ClientSession, *, tasks: set[asyncio.Task[None]]
    ) -> None:
        texts = random.Random(self.seed)
        for request in self.plan:
            text = self.library.prompt(request.prompt_tokens, rng=texts)
            body = chat_body(request, text=text, model=self.model)
            wait_s = s_from_ns(request.due_ns - self._now_ns())
            await asyncio.sleep(max(wait_s, 0))
            self.lag_ns_max = max(self.lag_ns_max, self._now_ns() - request.due_ns)
            self.sent += 1
            attempt = LoadAttempt(request.index, 0, request.due_ns)
            self.attempts.append(attempt)
            if self.in_flight >= self.in_flight_max:
                attempt.fate, attempt.reason = Fate.ERROR, "client_in_flight_cap"
                attempt.end_ns = self._now_ns()
                self.capped += 1
                continue
            task = asyncio.create_task(self._serve(session, body, attempt=attempt))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve(
        self, session: aiohttp.ClientSession, body: bytes, *, attempt: LoadAttempt
    ) -> None:
        """See one unique request through all its attempts."""
        rng = random.Random(self.seed * 1_000_003 + attempt.index)
        self.in_flight += 1
        try:
            while True:
                reply = await send_once(session, body, attempt=attempt, start_ns=self._start_ns)
                if attempt.fate is Fate.COMPLETED or reply.is_final:
                    return
                if attempt.number >= self.retries or not is_retried(reply.status, reply.headers):
                    return
                await asyncio.sleep(retry_delay_s(attempt.number, reply.headers, rng=rng))
                attempt = LoadAttempt(attempt.index, attempt.number + 1, self._now_ns())
                self.attempts.append(attempt)
        finally:
            self.in_flight -= 1


async def _all_done(tasks: set[asyncio.Task[None]]) -> None:
    while tasks:
        await asyncio.wait(set(tasks))
