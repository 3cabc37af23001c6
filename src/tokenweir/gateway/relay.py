"""How does an answer pass through, and what does it turn out to have cost?

Bytes go out as they come in. Whatever ends it - the end, the client, the upstream, a limit, a
shutdown - the reservation is closed in one ``finally``, with what is known by then, and the
upstream's connection is cut unless the body has come to its end.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tokenweir.core.request import Outcome, Usage
from tokenweir.core.units import Nanos
from tokenweir.driver.flight import Flight
from tokenweir.gateway.interrupts import Cause, Interrupt
from tokenweir.http.asgi import HeaderList, Send, header
from tokenweir.http.demand import Demand
from tokenweir.http.headers import for_client
from tokenweir.http.paths.usage import read_answer
from tokenweir.http.prompt_estimate import TokenRatios
from tokenweir.http.stream_account import StreamAccount
from tokenweir.ports.clock import Clock
from tokenweir.ports.upstream import UpstreamBroken, UpstreamResponse
from tokenweir.settings.model import TimeoutSettings

__all__ = ["Relay", "RelayConfig"]

# Of an answer that is not streamed at least this much is kept for its usage: it stands at the end.
_KEPT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """What all relays of a pool share."""

    clock: Clock
    ratios: TokenRatios
    timeouts: TimeoutSettings
    client_stall_ns: Nanos


class Relay:
    """One answer on its way from the upstream to the client.

    Attributes:
        has_started: Whether the client has got the head of the answer.
        is_event_stream: Whether what it gets are server-sent events.
        is_inside_line: Whether the last byte it got was inside a line.
    """

    def __init__(
        self,
        flight: Flight,
        demand: Demand,
        *,
        model: str,
        config: RelayConfig,
        interrupt: Interrupt,
        send: Send,
    ) -> None:
        """Take the flight over: ``run`` closes it."""
        self._flight = flight
        self._demand = demand
        self._model = model
        self._config = config
        self._interrupt = interrupt
        self._send = send
        self._usage: Usage | None = None
        self._account: StreamAccount | None = None
        self._outcome: Outcome | None = None
        self.has_started = False
        self.is_event_stream = False

    @property
    def is_inside_line(self) -> bool:
        """Whether the client's stream stopped in the middle of a line."""
        return self._account is not None and self._account.is_inside_line

    async def run(self, response: UpstreamResponse, *, headers: HeaderList) -> None:
        """Pass an answer on, and close the flight.

        Args:
            response: Its head is here; it is closed in any case.
            headers: Of ours, to be added.

        Raises:
            UpstreamBroken: The upstream broke off; ``has_started`` says whether the client has got
                anything.
        """
        try:
            content_type = header(response.headers, b"content-type") or b""
            self.is_event_stream = content_type.startswith(b"text/event-stream")
            # The first piece is awaited before the head goes out: until then all can be refused.
            first = await response.next_chunk()
            head = {
                "type": "http.response.start",
                "status": response.status,
                "headers": for_client(response.headers, keeps_length=not self.is_event_stream)
                + headers,
            }
            if self.is_event_stream:
                await self._stream(response, first, head=head)
            else:
                await self._pass(response, first, head=head)
        finally:
            response.close()
            self._close_flight()
        await self._give({"type": "http.response.body", "body": b""})

    async def _give(self, message: dict[str, object]) -> None:
        """Send to the client, which may not stall for longer than it may."""
        config = self._config
        self._interrupt.limit(config.clock() + config.client_stall_ns, Cause.CLIENT_STALLED)
        await self._send(message)

    def _begin(self) -> None:
        self.has_started = self._flight.is_begun = True

    async def _stream(
        self, response: UpstreamResponse, chunk: bytes, *, head: dict[str, object]
    ) -> None:
        """Pass events on until the upstream's end."""
        config, flight, interrupt = self._config, self._flight, self._interrupt
        clock, idle_ns = config.clock, config.timeouts.idle
        account = self._account = self._demand.form.account(hides_usage=self._demand.hides_usage)
        per_chunk = config.ratios.tokens_per_chunk(self._model)
        flight.is_streamed = True
        while chunk:
            passed = account.feed(chunk)
            if account.chunks and not flight.output_tokens:
                flight.first_token()
            flight.output_tokens = int(account.chunks * per_chunk)
            if passed:
                if not self.has_started:
                    self._begin()
                    await self._give(head)
                await self._give({"type": "http.response.body", "body": passed, "more_body": True})
            interrupt.limit(clock() + idle_ns, Cause.IDLE_TIMEOUT)
            chunk = await response.next_chunk()
        rest = account.flush()
        if account.outcome is Outcome.ERROR and not account.has_failed:
            raise UpstreamBroken("upstream ended its stream without an end")
        self._outcome = account.outcome
        if not self.has_started:
            self._begin()
            await self._give(head)
        if rest:
            await self._give({"type": "http.response.body", "body": rest, "more_body": True})

    async def _pass(
        self, response: UpstreamResponse, chunk: bytes, *, head: dict[str, object]
    ) -> None:
        """Pass a plain body on, and read its usage at its end."""
        kept = bytearray()
        interrupt, clock = self._interrupt, self._config.clock
        is_answer = response.status < 300
        self._begin()
        await self._give(head)
        while chunk:
            if is_answer:
                kept += chunk
                if len(kept) > 2 * _KEPT_BYTES:
                    del kept[:-_KEPT_BYTES]
            await self._give({"type": "http.response.body", "body": chunk, "more_body": True})
            interrupt.limit(clock() + self._config.timeouts.idle, Cause.IDLE_TIMEOUT)
            chunk = await response.next_chunk()
        if is_answer:
            form = self._demand.form
            self._usage, self._outcome = read_answer(kept, names=form.usage, cut=form.cut)
        else:
            self._outcome = Outcome.ERROR

    # --- the end ------------------------------------------------------------------------------

    def _close_flight(self) -> None:
        """Close the flight with what is known; not to be interrupted, so nothing is awaited."""
        flight, account = self._flight, self._account
        usage = account.usage if account is not None else self._usage
        outcome = self._outcome
        if outcome is None:
            outcome = self._interrupt.outcome
        if usage is not None:
            self._learn(usage)
        else:
            usage = self._estimated(outcome)
        flight.settle(usage, outcome=outcome)

    def _learn(self, usage: Usage) -> None:
        """Let what the upstream counted improve the next estimate."""
        ratios, model = self._config.ratios, self._model
        self._flight.note_prompt(usage.prompt_tokens)
        ratios.learn_prompt(model, self._demand.size, prompt_tokens=usage.prompt_tokens)
        if self._account is not None:
            ratios.learn_chunks(model, self._account.chunks, output_tokens=usage.output_tokens)

    def _estimated(self, outcome: Outcome) -> Usage:
        """Return the usage where the upstream told none: counted, or guessed from the time."""
        flight, account = self._flight, self._account
        if account is not None:
            told = account.prompt_usage or Usage(flight.request.prompt_tokens, 0)
            return dataclasses.replace(told, output_tokens=flight.output_tokens)
        if outcome is Outcome.ERROR:
            return Usage(flight.request.prompt_tokens, 0)
        return Usage(flight.request.prompt_tokens, flight.reported_tokens)
