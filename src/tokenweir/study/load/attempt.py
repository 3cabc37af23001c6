"""What happens when one request is sent once? One POST, one streamed answer, one fate.

A client gives up when nothing comes for its timeout, before the answer or inside it, and closes the
connection, as the SDKs' read timeout does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import aiohttp

from tokenweir.core.units import Nanos
from tokenweir.study.load.answer import AnswerReader
from tokenweir.study.load.plan import PlannedRequest

__all__ = ["CHAT_PATH", "Fate", "LoadAttempt", "Reply", "chat_body", "send_once"]

CHAT_PATH = "/v1/chat/completions"


class Fate(Enum):
    """How an attempt ended.

    UNSERVED was still open when the run was cut; REFUSED got a 4xx or 503 instead of an answer;
    ABANDONED was given up by its client; ERROR is everything that should not happen.
    """

    UNSERVED = "unserved"
    REFUSED = "refused"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    ERROR = "error"


@dataclass(slots=True)
class LoadAttempt:
    """One try of one unique request; times in ns from the start of the run.

    Attributes:
        index: Of the unique request in the plan.
        number: 0 for the first try.
        arrive_ns: When it was due (first try) or sent (retry).
        fate: See ``Fate``.
        reason: Why it was refused or failed, a stable word, else empty.
        first_ns: First token, or None.
        last_ns: Last token, or None.
        end_ns: When its fate was known, or None.
        output_tokens: Received.
    """

    index: int
    number: int
    arrive_ns: Nanos
    fate: Fate = Fate.UNSERVED
    reason: str = ""
    first_ns: Nanos | None = None
    last_ns: Nanos | None = None
    end_ns: Nanos | None = None
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What decides whether a client tries again: the answer's status and headers, if any came.

    Attributes:
        status: None where no answer came.
        headers: By lower-case name.
        is_final: The answer had begun: no SDK repeats what it has handed out in part.
    """

    status: int | None
    headers: Mapping[str, str]
    is_final: bool = False


_NO_REPLY = Reply(None, {})


def chat_body(request: PlannedRequest, *, text: str, model: str) -> bytes:
    """Return the JSON body of a planned request with this prompt text."""
    fields: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": request.tenant,
        "emulated_output_tokens": request.output_tokens,
    }
    if request.output_tokens_max is not None:
        fields["max_tokens"] = request.output_tokens_max
    return json.dumps(fields, ensure_ascii=False).encode("utf-8")


async def send_once(
    session: aiohttp.ClientSession, body: bytes, *, attempt: LoadAttempt, start_ns: Nanos
) -> Reply:
    """Send a request, read its answer, and write its fate into ``attempt``.

    Args:
        session: Has base address, timeouts and common headers.
        body: From ``chat_body``.
        attempt: UNSERVED; stays so where this coroutine is cancelled.
        start_ns: Monotonic time at which the run began.
    """
    reader = AnswerReader()
    reply = _NO_REPLY
    try:
        headers = {"x-stainless-retry-count": str(attempt.number)}
        async with session.post(CHAT_PATH, data=body, headers=headers) as response:
            lower = {name.lower(): value for name, value in response.headers.items()}
            reply = Reply(response.status, lower, is_final=response.status == 200)
            if response.status == 200:
                await _read_stream(response, reader, start_ns=start_ns)
                _conclude(attempt, reader)
            else:
                attempt.fate, attempt.reason = _refusal(reply, await response.content.read(65_536))
    except TimeoutError:
        attempt.fate, attempt.reason = Fate.ABANDONED, "timeout"
    except (aiohttp.ClientError, OSError) as exc:
        attempt.fate, attempt.reason = Fate.ERROR, type(exc).__name__
    finally:
        attempt.first_ns = reader.first_token_ns
        attempt.last_ns = reader.last_token_ns
        attempt.output_tokens = reader.output_tokens
    attempt.end_ns = time.monotonic_ns() - start_ns
    return reply


async def _read_stream(
    response: aiohttp.ClientResponse, reader: AnswerReader, *, start_ns: Nanos
) -> None:
    try:
        async for data in response.content.iter_any():
            reader.feed(data, now_ns=time.monotonic_ns() - start_ns)
    except BaseException:
        # Whoever leaves in the middle closes the connection, so that the other side can stop.
        response.close()
        raise


def _conclude(attempt: LoadAttempt, reader: AnswerReader) -> None:
    if reader.error is not None:
        attempt.fate, attempt.reason = Fate.ERROR, reader.error
    elif not reader.is_done or reader.first_token_ns is None:
        attempt.fate, attempt.reason = Fate.ERROR, "broken_stream"
    else:
        attempt.fate = Fate.COMPLETED


def _refusal(reply: Reply, body: bytes) -> tuple[Fate, str]:
    status = reply.status or 0
    fate = Fate.REFUSED if 400 <= status < 500 or status == 503 else Fate.ERROR
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return fate, code if isinstance(code, str) else f"http_{status}"
