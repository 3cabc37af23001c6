"""How does the emulated engine answer over HTTP? A bare ASGI application on one ``Engine``.

Paths: those of ``FORMS``, ``/v1/models``, ``/health``, ``/version``, ``/metrics``. A client that
closes its connection takes its request out of the engine at once, whether the answer was streamed
or not.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tokenweir.core.units import Nanos, s_from_ns
from tokenweir.engine.batch import Engine, StepResult
from tokenweir.testing.engine_forms import FORMS, EngineForm
from tokenweir.testing.engine_metrics import EngineMetrics
from tokenweir.testing.engine_stream import AnswerStream
from tokenweir.testing.engine_wire import SERVED_MODEL, EngineCall, WireError

__all__ = ["BODY_BYTES_MAX", "EngineApp"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX = 32 * 1024 * 1024

_JSON = b"application/json"
_EVENTS = b"text/event-stream; charset=utf-8"
_PLAIN = b"text/plain; version=0.0.4; charset=utf-8"


class EngineApp:
    """The application; the server's stepping loop steps the engine and delivers the results."""

    def __init__(self, engine: Engine, *, queued_max: int | None = None) -> None:
        """Serve an engine.

        Args:
            engine: Stepped by the caller, who delivers each result.
            queued_max: Requests that may be running or waiting together before the engine answers
                that it is busy, as vLLM's own admission does; None for no limit.
        """
        self.engine = engine
        self.metrics = EngineMetrics(engine)
        self.has_work = asyncio.Event()
        self._queued_max = queued_max
        self._streams: dict[str, AnswerStream] = {}
        self._numbers = itertools.count(1)
        self._is_stopping = False

    async def __call__(  # noqa: PLR0917 - ASGI calls by position
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        form = FORMS.get(path)
        try:
            if form is not None:
                if method != "POST":
                    raise WireError("Method Not Allowed", status=405, kind="Method Not Allowed")
                await self._generate(form, receive=receive, send=send)
                return
            body, content_type = self._page(path)
        except WireError as error:
            said = error.body() if form is None else form.error(error)
            await _answer(send, said, status=error.status)
            return
        await _answer(send, body, content_type=content_type)

    def deliver(self, result: StepResult, *, now_ns: Nanos) -> None:
        """Hand every token of the last step to its stream, at the step's end."""
        self.metrics.observe_step(result)
        for sequence in result.first:
            self.metrics.prompt_tokens_total += sequence.prompt_tokens
        # Whoever decodes after a step has got a token in it, and so has whoever finished. Clients
        # that left since have taken their streams with them.
        for sequence in self.engine.decoding():
            self._note_token(self._streams[sequence.sequence_id], now_ns=now_ns, is_last=False)
        for sequence in result.finished:
            stream = self._streams.pop(sequence.sequence_id, None)
            if stream is not None:
                self._note_token(stream, now_ns=now_ns, is_last=True)

    def stop(self) -> None:
        """Cut every answer off and take no more requests."""
        self._is_stopping = True
        for answer_id in list(self._streams):
            self._abort(answer_id)

    def _note_token(self, stream: AnswerStream, *, now_ns: Nanos, is_last: bool) -> None:
        metrics = self.metrics
        metrics.generation_tokens_total += 1
        gap_s = s_from_ns(now_ns - stream.last_token_ns)
        (metrics.gap_s if stream.sent_tokens else metrics.first_token_s).observe(gap_s)
        stream.last_token_ns = now_ns
        stream.add_token(is_last=is_last)
        if is_last:
            metrics.request_s.observe(s_from_ns(now_ns - stream.arrival_ns))

    def _page(self, path: str) -> tuple[bytes, bytes]:
        if path == "/health":
            return b"", _JSON
        if path == "/metrics":
            return self.metrics.page(), _PLAIN
        if path == "/version":
            return b'{"version":"tokenweir emulated engine"}', _JSON
        if path == "/v1/models":
            model = {
                "id": SERVED_MODEL,
                "object": "model",
                "owned_by": "tokenweir",
                "max_model_len": self.engine.profile.kv_tokens,
            }
            return json.dumps({"object": "list", "data": [model]}).encode("ascii"), _JSON
        raise WireError("Not Found", status=404, kind="NotFoundError")

    async def _generate(self, form: EngineForm, *, receive: Receive, send: Send) -> None:
        body = await _whole_body(receive)
        if body is None:
            return
        call = form.parse(form.path, body, context_tokens=self.engine.profile.kv_tokens)
        self._check_room()
        stream = self._submit(form, call)
        answer_id = stream.sequence.sequence_id
        watcher = asyncio.create_task(self._watch(answer_id, receive=receive))
        try:
            if call.is_stream:
                await _send_stream(stream, send=send)
            else:
                await _send_whole(stream, send=send)
        finally:
            watcher.cancel()
            self._abort(answer_id)
            self.metrics.finished[call.finish_reason if stream.is_ended else "abort"] += 1

    def _check_room(self) -> None:
        if self._is_stopping:
            raise WireError("The engine is stopping", status=503, kind="Service Unavailable")
        queued_max = self._queued_max
        if queued_max is not None and len(self._streams) >= queued_max:
            self.metrics.rejections_total += 1
            raise WireError(
                "The engine is currently busy and cannot take more requests. Please retry later.",
                status=503,
                kind="Service Unavailable",
            )

    def _submit(self, form: EngineForm, call: EngineCall) -> AnswerStream:
        answer_id = f"{form.id_prefix}{next(self._numbers):016x}"
        sequence = self.engine.submit(
            answer_id, prompt_tokens=call.prompt_tokens, output_tokens=call.output_tokens
        )
        stream = AnswerStream(
            sequence,
            call,
            writer=form.writer(call, answer_id),
            now_ns=time.monotonic_ns(),
        )
        self._streams[answer_id] = stream
        self.has_work.set()
        return stream

    async def _watch(self, answer_id: str, *, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._abort(answer_id)

    def _abort(self, answer_id: str) -> None:
        """Take a request out of the engine; nothing happens where it has ended."""
        stream = self._streams.pop(answer_id, None)
        if stream is not None:
            self.engine.abort(answer_id)
            stream.cut()


async def _whole_body(receive: Receive) -> bytes | None:
    """Return the request's body, or None where the client left before its end."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise WireError(f"the body is over {BODY_BYTES_MAX} bytes", status=413)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _send_stream(stream: AnswerStream, *, send: Send) -> None:
    await _start(send, status=200, content_type=_EVENTS)
    while True:
        body = await stream.take()
        if stream.is_cut:
            return
        is_ended = stream.is_ended
        await send({"type": "http.response.body", "body": body, "more_body": not is_ended})
        if is_ended:
            return


async def _send_whole(stream: AnswerStream, *, send: Send) -> None:
    body = await stream.take()
    if not stream.is_cut:
        await _answer(send, body)


async def _answer(
    send: Send, body: bytes, *, status: int = 200, content_type: bytes = _JSON
) -> None:
    await _start(send, status=status, content_type=content_type, length=len(body))
    await send({"type": "http.response.body", "body": body})


async def _start(
    send: Send, *, status: int, content_type: bytes, length: int | None = None
) -> None:
    headers = [(b"content-type", content_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": status, "headers": headers})
