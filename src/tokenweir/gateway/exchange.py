"""What happens to one request, from its arrival to the end of its answer?

Parse, choose the route, ask for admission, wait, forward, relay. Refusals are answers like any
other. The client is watched from the moment its body is complete: when it leaves, the wait that is
going on is cancelled, whatever it is, and what the request held is given back on the way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tokenweir.adapters.prometheus import PrometheusMetrics
from tokenweir.core.decision import Reject
from tokenweir.core.mode import Mode
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.driver.flight import Flight
from tokenweir.gateway.interrupts import NEVER_NS, Cause, Interrupt, Watchdog
from tokenweir.gateway.pools import Pool, Pools
from tokenweir.gateway.relay import Relay, RelayConfig
from tokenweir.gateway.verdicts import REASON_OF_FAULT, not_for_good, verdict_of, with_cause
from tokenweir.http.asgi import HeaderList, Receive, Scope, Send, json_bytes, send_body
from tokenweir.http.body import BodyTooLarge, ClientGone, read_body, skip_body
from tokenweir.http.demand import (
    BadRequest,
    Demand,
    ParsedBody,
    Room,
    parse_body,
    shape,
)
from tokenweir.http.headers import for_upstream, request_id
from tokenweir.http.identity import Identities
from tokenweir.http.paths.form import PathForm
from tokenweir.http.prompt_estimate import PromptSize, TokenRatios
from tokenweir.http.refusals import error_object, refusal
from tokenweir.http.returning import Tickets, attempt_number, body_hash
from tokenweir.http.wishes import Grant, grant, granted_class, wishes_of
from tokenweir.ports.clock import Clock
from tokenweir.ports.events import UpstreamFault, Verdict
from tokenweir.ports.upstream import UpstreamBroken, UpstreamResponse, UpstreamUnreachable
from tokenweir.settings.model import LimitSettings

__all__ = ["Exchange", "Shared"]

# What an engine that says "busy" is given before it is asked once more.
_BUSY_PAUSE_S = 0.1
# For a last word to a client, which may not be reading any more.
_LAST_WORD_S = 2.0
# For a client to stop sending a body that is refused.
_LINGER_S = 1.0
_ENGINE_BUSY = 503

_FAULT_OF_CAUSE = {
    Cause.FIRST_BYTE_TIMEOUT: UpstreamFault.FIRST_BYTE_TIMEOUT,
    Cause.IDLE_TIMEOUT: UpstreamFault.IDLE_TIMEOUT,
    Cause.TOTAL_TIMEOUT: UpstreamFault.TOTAL_TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What all exchanges of a gateway share; ``ids`` never repeats one."""

    pools: Pools
    limits: LimitSettings
    watchdog: Watchdog
    ratios: TokenRatios
    metrics: PrometheusMetrics
    clock: Clock
    ids: Iterator[str]
    tickets: Tickets
    identities: Identities


class Exchange:
    """One request of one of the admitted paths."""

    def __init__(
        self, shared: Shared, form: PathForm, *, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Prepare; to be created in the task that runs it."""
        self._shared = shared
        self._form = form
        self._scope = scope
        self._receive = receive
        self._send = send
        task = asyncio.current_task()
        assert task is not None
        self._interrupt = Interrupt(task)
        self._id = next(shared.ids)
        self._wire_id = request_id(scope["headers"], default=self._id)
        self._arrived_ns = shared.clock()
        self._grant: Grant | None = None
        self._pool: Pool | None = None
        self._request: Request | None = None
        self._flight: Flight | None = None
        self._relay: Relay | None = None

    async def run(self) -> None:
        """Answer the request; whatever ends it, nothing is held afterwards."""
        interrupt, watchdog = self._interrupt, self._shared.watchdog
        if len(watchdog) >= self._shared.limits.connections:
            await self._refuse(Reject(ReasonCode.QUEUE_FULL, retry_after_ns=NS_PER_S))
            return
        watchdog.watch(interrupt)
        watcher: asyncio.Task[None] | None = None
        try:
            parsed = await self._parsed()
            if parsed is not None:
                watcher = asyncio.create_task(self._watch_client())
                await self._answer(parsed)
        except asyncio.CancelledError:
            if interrupt.cause is None:
                raise
            interrupt.swallow()
            await self._last_word(interrupt.cause)
        except ClientGone:
            pass
        finally:
            interrupt.is_over = True
            watchdog.forget(interrupt)
            if watcher is not None:
                watcher.cancel()

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._interrupt.fire(Cause.CLIENT_GONE)

    # --- before admission ---------------------------------------------------------------------

    async def _parsed(self) -> ParsedBody | None:
        """Return the body, or None where it was refused."""
        limits = self._shared.limits
        self._interrupt.limit(self._shared.clock() + limits.body_timeout, Cause.BODY_TIMEOUT)
        try:
            raw = await read_body(self._scope, self._receive, bytes_max=limits.body)
            return parse_body(raw, self._form)
        except BodyTooLarge:
            await self._refuse(
                Reject(ReasonCode.BODY_TOO_LARGE, limit_tokens=limits.body), lingers=True
            )
        except BadRequest as error:
            await self._refuse_bad(error)
        return None

    async def _answer(self, parsed: ParsedBody) -> None:
        shared, headers = self._shared, self._scope["headers"]
        identity = shared.identities.of(headers)
        try:
            wishes = wishes_of(headers)
            route = shared.pools.route(
                self._scope["path"],
                parsed.model,
                priority=granted_class(wishes, identity.allowance),
            )
            self._grant = granted = grant(
                wishes,
                identity.allowance,
                wait_ns_max_of=route.pool.limits.wait_ns_max_of,
            )
            demand = shape(
                parsed,
                output_tokens_max=route.output_tokens_max,
                room_beside=lambda size: self._room(route.pool, parsed.model, size=size),
            )
        except BadRequest as error:
            await self._refuse_bad(error)
            return
        self._pool = route.pool
        number = attempt_number(headers)
        request = Request(
            request_id=self._id,
            prompt_tokens=shared.ratios.prompt_tokens(parsed.model, demand.size),
            output_tokens_max=demand.output_tokens_max,
            sequences=demand.sequences,
            tenant=identity.tenant,
            priority=granted.priority,
            deadline_ns=self._deadline_ns(granted),
            wait_ns_max=granted.wait_ns_max,
            length_mode=identity.length_mode,
            attempt=number or 0,
            counts_attempts=number is not None,
            body_hash=body_hash(parsed.raw),
        )
        request = shared.tickets.with_ticket(request, headers)
        fault = await self._attempt(route.pool, request, demand=demand, model=parsed.model)
        if fault is None:
            return
        if fault is UpstreamFault.BUSY:
            await asyncio.sleep(_BUSY_PAUSE_S)
        again = dataclasses.replace(request, request_id=f"{self._id}.1")
        fault = await self._attempt(
            route.pool, again, demand=demand, model=parsed.model, earlier=fault
        )
        if fault is not None:
            await self._refuse(route.pool.driver.refuse(request, REASON_OF_FAULT[fault]))

    def _deadline_ns(self, granted: Grant) -> Nanos | None:
        return None if granted.deadline_ns is None else self._arrived_ns + granted.deadline_ns

    def _room(self, pool: Pool, model: str, *, size: PromptSize) -> Room | None:
        context_tokens = pool.context_tokens
        if context_tokens is None:
            return None
        prompt_tokens = self._shared.ratios.prompt_tokens(model, size)
        return Room.beside(prompt_tokens, context_tokens=context_tokens)

    # --- one attempt --------------------------------------------------------------------------

    async def _attempt(
        self,
        pool: Pool,
        request: Request,
        *,
        demand: Demand,
        model: str,
        earlier: UpstreamFault | None = None,
    ) -> UpstreamFault | None:
        """Ask for admission and forward; returns the fault where another attempt makes sense.

        Args:
            pool: Where to.
            request: With an id of its own.
            demand: What to forward.
            model: Whose ratios to use.
            earlier: What went wrong at the first attempt, which an answer must tell of.
        """
        self._request = request
        self._interrupt.limit(NEVER_NS, Cause.TOTAL_TIMEOUT)
        # While it waits, the deadline is the core's to keep.
        self._interrupt.deadline_ns = NEVER_NS
        admitted = await pool.driver.admit(request)
        if isinstance(admitted, Reject):
            if pool.is_size_stale:
                admitted = not_for_good(admitted)
            await self._refuse(with_cause(admitted, earlier))
            return None
        while True:
            fault = await self._serve(pool, admitted, demand=demand, model=model)
            if admitted.again is None:
                return fault
            again = await pool.driver.wait_again(admitted)
            if isinstance(again, Reject):
                await self._refuse(with_cause(again, earlier))
                return None
            admitted = again

    async def _serve(
        self, pool: Pool, admitted: Flight, *, demand: Demand, model: str
    ) -> UpstreamFault | None:
        """Forward a flight and relay its answer, unless it is put back before that has begun."""
        interrupt = self._interrupt
        admitted.on_interrupt = lambda: interrupt.fire(
            Cause.INTERRUPTED if admitted.again is None else Cause.PUT_BACK
        )
        if admitted.interrupted is not None:
            # In the moment in which it was let in.
            await self._refuse(admitted.interrupted)
        if admitted.is_stopped:
            return None
        self._flight = admitted
        # Who only observes cuts nothing.
        if pool.driver.mode is Mode.ENFORCE:
            interrupt.deadline_ns = admitted.request.deadline_ns or NEVER_NS
        try:
            response, fault = await self._forward(pool, admitted, demand=demand)
            if response is None:
                return fault
            config = RelayConfig(
                self._shared.clock,
                self._shared.ratios,
                pool.timeouts,
                self._shared.limits.client_stall,
            )
            self._relay = relay = Relay(
                admitted,
                demand,
                model=model,
                config=config,
                interrupt=self._interrupt,
                send=self._send,
            )
            pool.events.decided(*verdict_of(admitted, demand))
            return await self._relayed(relay, response, headers=self._headers(admitted, demand))
        except asyncio.CancelledError:
            if not interrupt.is_put_back_only:
                pool.driver.abandon(admitted)
                raise
            interrupt.go_on()
            interrupt.limit(NEVER_NS, Cause.TOTAL_TIMEOUT)
            interrupt.deadline_ns = NEVER_NS
            return None
        finally:
            # Closed already, unless something interrupted us before the relay took over.
            usage = Usage(admitted.request.prompt_tokens, 0)
            admitted.settle(usage, outcome=interrupt.outcome)

    async def _forward(
        self, pool: Pool, flight: Flight, *, demand: Demand
    ) -> tuple[UpstreamResponse | None, UpstreamFault | None]:
        """Send the request; returns the answer's head, or a fault that may be tried again."""
        timeouts = pool.timeouts
        now_ns = self._shared.clock()
        if demand.is_streamed:
            self._interrupt.limit(now_ns + timeouts.first_byte, Cause.FIRST_BYTE_TIMEOUT)
        else:
            self._interrupt.limit(now_ns + timeouts.total, Cause.TOTAL_TIMEOUT)
        query = self._scope.get("query_string", b"")
        target = self._scope["path"] + (f"?{query.decode('latin-1')}" if query else "")
        fault = UpstreamFault.BUSY
        try:
            response = await pool.upstreams[flight.replica].send(
                "POST",
                target,
                headers=for_upstream(self._scope["headers"], request_id=self._wire_id),
                body=demand.body,
            )
        except UpstreamUnreachable:
            fault = UpstreamFault.UNREACHABLE
            flight.release()
            pool.driver.mark_unhealthy(flight.replica)
        except UpstreamBroken:
            # Perhaps only a pooled connection that was closed just then: not yet a sick replica.
            fault = UpstreamFault.BROKEN
            flight.settle(Usage(flight.request.prompt_tokens, 0), outcome=Outcome.ERROR)
        else:
            if response.status != _ENGINE_BUSY:
                if 400 <= response.status < 500:
                    # The engine has looked at it and not begun.
                    flight.release()
                return response, None
            response.close()
            flight.release()
        pool.events.upstream_fault(flight.replica, fault)
        return None, fault

    async def _relayed(
        self, relay: Relay, response: UpstreamResponse, *, headers: HeaderList
    ) -> UpstreamFault | None:
        """Relay an answer; returns the fault where the client has not got anything of it."""
        try:
            await relay.run(response, headers=headers)
        except UpstreamBroken:
            assert self._pool is not None
            assert self._flight is not None
            self._pool.events.upstream_fault(self._flight.replica, UpstreamFault.BROKEN)
            if not relay.has_started:
                return UpstreamFault.BROKEN
            await self._end_stream(Reject(ReasonCode.UPSTREAM_BROKEN))
        return None

    # --- answers ------------------------------------------------------------------------------

    def _headers(self, flight: Flight, demand: Demand) -> HeaderList:
        """Return what the client is told about its admission."""
        verdict, reason = verdict_of(flight, demand)
        headers = [
            (b"x-tokenweir-decision", verdict.value.encode()),
            (b"x-tokenweir-reason", reason.value.encode()),
            (b"x-tokenweir-queue-ms", b"%d" % (flight.queue_wait_ns // NS_PER_MS)),
            (b"x-tokenweir-reserved-tokens", b"%d" % flight.admit.reserved_tokens),
            (b"x-request-id", self._wire_id),
            *self._told(),
        ]
        if demand.changes:
            headers.append((b"x-tokenweir-degraded", ", ".join(demand.changes).encode()))
        return headers

    def _told(self) -> HeaderList:
        """Return what was granted otherwise than it was asked for."""
        return [] if self._grant is None else self._grant.headers

    async def _refuse_bad(self, error: BadRequest) -> None:
        await self._refuse(Reject(ReasonCode.BAD_REQUEST), message=str(error), param=error.param)

    async def _refuse(
        self,
        reject: Reject,
        *,
        message: str | None = None,
        param: str | None = None,
        lingers: bool = False,
    ) -> None:
        """Answer with a refusal.

        Args:
            reject: Why.
            message: What exactly is wrong.
            param: Which member of the request.
            lingers: The body has not been read to its end: the connection is closed, but only after
                the client had time to read the answer. Closing at once would reset it unread.
        """
        if self._pool is not None:
            self._pool.events.decided(Verdict.REJECT, reject.reason)
        else:
            self._shared.metrics.http_refusals[reject.reason] += 1
        self._interrupt.limit(
            self._shared.clock() + self._shared.limits.client_stall, Cause.CLIENT_STALLED
        )
        self._interrupt.deadline_ns = NEVER_NS
        answer = refusal(reject, message=message, param=param, beside=self._form.error_members)
        headers = [*answer.headers, (b"x-request-id", self._wire_id), *self._told()]
        if reject.ticket is not None and self._request is not None:
            headers += self._shared.tickets.header_for(reject.ticket, self._request)
        if lingers:
            headers.append((b"connection", b"close"))
        await send_body(
            self._send,
            answer.body,
            status=answer.status,
            content_type=b"application/json",
            headers=headers,
            ends=not lingers,
        )
        if lingers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_S):
                    await skip_body(self._receive)
            await self._send({"type": "http.response.body", "body": b""})

    async def _last_word(self, cause: Cause) -> None:
        """Say why the request was stopped, to a client that may still listen."""
        if cause in {Cause.CLIENT_GONE, Cause.CLIENT_STALLED}:
            return
        if cause is Cause.BODY_TIMEOUT:
            reject, message = Reject(ReasonCode.BAD_REQUEST), "the body did not arrive in time"
        else:
            reject, message = self._reject_of(cause), None
        try:
            async with asyncio.timeout(_LAST_WORD_S):
                if self._relay is not None and self._relay.has_started:
                    await self._end_stream(reject)
                else:
                    await self._refuse(reject, message=message, lingers=cause is Cause.BODY_TIMEOUT)
        except TimeoutError:
            pass

    def _reject_of(self, cause: Cause) -> Reject:
        """Return the refusal for a request that was stopped after it was parsed."""
        if self._flight is not None and self._flight.interrupted is not None:
            return self._flight.interrupted
        fault = _FAULT_OF_CAUSE.get(cause)
        reason = ReasonCode.DRAINING if fault is None else ReasonCode.UPSTREAM_TIMEOUT
        if cause is Cause.DEADLINE:
            reason = ReasonCode.DEADLINE_PASSED
        if self._pool is None or self._request is None:
            return Reject(reason, retry_after_ns=NS_PER_S)
        if fault is not None and self._flight is not None:
            self._pool.events.upstream_fault(self._flight.replica, fault)
        return self._pool.driver.refuse(self._request, reason)

    async def _end_stream(self, reject: Reject) -> None:
        """End a stream that has begun with an error event; its connection is closed behind it.

        The body is left without its end on purpose, so that a client which does not know error
        events still sees that it was cut.
        """
        relay = self._relay
        if relay is None or not relay.is_event_stream:
            return
        lead = b"\n\n" if relay.is_inside_line else b""
        error = json_bytes(error_object(reject, beside=self._form.error_members))
        event = lead + b"event: error\ndata: " + error + b"\n\n"
        await self._send({"type": "http.response.body", "body": event, "more_body": True})
