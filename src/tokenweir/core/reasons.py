"""Why was a request answered so? Stable codes, one table row each.

Codes are part of the outside contract: they appear in the error body's ``code``, in
``x-tokenweir-reason`` and in metrics. A row is never renamed, only added.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["REASONS", "ReasonCode", "ReasonRow", "Scope", "Stage"]


class ReasonCode(Enum):
    """Every reason a decision can carry."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    FITS = "fits"
    WAITING = "waiting"
    BYPASSED = "bypassed"
    OVERLOAD_KV = "overload_kv"
    OVERLOAD_CONCURRENCY = "overload_concurrency"
    OVERLOAD_GATE = "overload_gate"
    OVERLOAD_PREFILL = "overload_prefill"
    OVERLOAD_PACE = "overload_pace"
    CLASS_PAUSED = "class_paused"
    INTERRUPTED = "interrupted"
    QUEUE_FULL = "queue_full"
    QUEUE_DISPLACED = "queue_displaced"
    TENANT_CONCURRENCY = "tenant_concurrency"
    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    RETRY_BUDGET_EXHAUSTED = "retry_budget_exhausted"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    ENGINE_BUSY = "engine_busy"
    TOO_LARGE = "request_too_large"
    OUTPUT_MAX_TOO_LARGE = "output_max_too_large"
    NO_HEALTHY_REPLICA = "no_healthy_replica"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_BROKEN = "upstream_broken"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    DEADLINE_PASSED = "deadline_passed"
    DRAINING = "draining"
    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"


class Scope(Enum):
    """Whose limit a refusal speaks of."""

    NONE = "none"
    REQUEST = "request"
    TENANT = "tenant"
    POOL = "pool"
    ENGINE = "engine"
    GATEWAY = "gateway"


class Stage(Enum):
    """Where on its way the request was answered."""

    PARSE = "parse"
    ADMISSION = "admission"
    QUEUE = "queue"
    UPSTREAM = "upstream"


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What one reason means outside.

    Attributes:
        status: HTTP status of a refusal with this reason (200 where it is no refusal).
        is_retryable: Whether the same request can succeed later.
        scope: Whose limit it was.
        stage: Where it was decided.
        action: What the caller should do, one sentence.
        message: What happened, one sentence.
        unit: Of the limit that the refusal names.
        is_advised: Whether a retryable refusal says when to come back; else the client should not
            try again by itself.
    """

    status: int
    is_retryable: bool
    scope: Scope
    stage: Stage
    action: str
    message: str
    unit: str = "tokens"
    is_advised: bool = True


_LATER = "retry after the stated time"
_NOT_BY_ITSELF = "do not retry automatically; ask again when a person wants it"
_SMALLER = "send a smaller request"

REASONS: dict[ReasonCode, ReasonRow] = {
    ReasonCode.FITS: ReasonRow(
        200, False, Scope.NONE, Stage.ADMISSION, "nothing", "the request fits"
    ),
    ReasonCode.WAITING: ReasonRow(200, False, Scope.POOL, Stage.QUEUE, "wait", "the request waits"),
    ReasonCode.BYPASSED: ReasonRow(
        200, False, Scope.NONE, Stage.ADMISSION, "nothing", "nothing was tested"
    ),
    ReasonCode.OVERLOAD_KV: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        _LATER,
        "the engine's KV cache has no room for this request now",
    ),
    ReasonCode.OVERLOAD_CONCURRENCY: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        _LATER,
        "as many requests as allowed are running now",
        "requests",
    ),
    ReasonCode.OVERLOAD_GATE: ReasonRow(
        429, True, Scope.POOL, Stage.ADMISSION, _LATER, "the engine's KV cache is nearly full"
    ),
    ReasonCode.OVERLOAD_PREFILL: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        _LATER,
        "the engine has more prompts to read than can be answered in time",
    ),
    ReasonCode.OVERLOAD_PACE: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        _LATER,
        "one more request would slow the running ones below their pace",
        "requests",
    ),
    ReasonCode.CLASS_PAUSED: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        _LATER,
        "requests of this class pause while more urgent ones need the pool",
    ),
    ReasonCode.INTERRUPTED: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.UPSTREAM,
        _LATER,
        "the request was running and gave way to a more urgent one; nothing is charged for it",
    ),
    ReasonCode.QUEUE_FULL: ReasonRow(
        429, True, Scope.POOL, Stage.ADMISSION, _LATER, "the queue is full"
    ),
    ReasonCode.QUEUE_DISPLACED: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.QUEUE,
        _LATER,
        "the queue was full and gave this place to a more urgent class or to a smaller share",
    ),
    ReasonCode.TENANT_CONCURRENCY: ReasonRow(
        429,
        True,
        Scope.TENANT,
        Stage.ADMISSION,
        _LATER,
        "this tenant has as many requests running as it may",
        "requests",
    ),
    ReasonCode.QUEUE_TIMEOUT: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.QUEUE,
        _LATER,
        "the request waited as long as it may and found no room",
    ),
    ReasonCode.DEADLINE_UNREACHABLE: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.ADMISSION,
        "retry after the stated time or allow more time",
        "the request cannot start before its deadline",
    ),
    ReasonCode.DEADLINE_EXCEEDED: ReasonRow(
        429,
        True,
        Scope.POOL,
        Stage.QUEUE,
        "retry after the stated time or allow more time",
        "the deadline passed while the request was queued",
    ),
    ReasonCode.RETRY_BUDGET_EXHAUSTED: ReasonRow(
        429,
        True,
        Scope.TENANT,
        Stage.ADMISSION,
        _NOT_BY_ITSELF,
        "this tenant retries more than its first attempts allow",
        is_advised=False,
    ),
    ReasonCode.ATTEMPTS_EXHAUSTED: ReasonRow(
        429,
        True,
        Scope.REQUEST,
        Stage.ADMISSION,
        _NOT_BY_ITSELF,
        "this request was tried as often as it may be",
        "attempts",
        is_advised=False,
    ),
    ReasonCode.ENGINE_BUSY: ReasonRow(
        429, True, Scope.ENGINE, Stage.UPSTREAM, _LATER, "the engine says that it is busy"
    ),
    ReasonCode.TOO_LARGE: ReasonRow(
        400,
        False,
        Scope.POOL,
        Stage.ADMISSION,
        _SMALLER,
        "the prompt is larger than the engine can ever hold",
    ),
    ReasonCode.OUTPUT_MAX_TOO_LARGE: ReasonRow(
        400,
        False,
        Scope.POOL,
        Stage.ADMISSION,
        "ask for fewer output tokens",
        "prompt and output maximum are more than the engine can hold",
    ),
    ReasonCode.NO_HEALTHY_REPLICA: ReasonRow(
        503, True, Scope.POOL, Stage.ADMISSION, _LATER, "no engine is healthy now"
    ),
    ReasonCode.UPSTREAM_UNREACHABLE: ReasonRow(
        503, True, Scope.ENGINE, Stage.UPSTREAM, _LATER, "the engine cannot be reached"
    ),
    ReasonCode.UPSTREAM_BROKEN: ReasonRow(
        502,
        True,
        Scope.ENGINE,
        Stage.UPSTREAM,
        "retry; tell the operator if it stays",
        "the engine broke the connection",
    ),
    ReasonCode.UPSTREAM_TIMEOUT: ReasonRow(
        504,
        True,
        Scope.ENGINE,
        Stage.UPSTREAM,
        "retry; tell the operator if it stays",
        "the engine did not answer in time",
    ),
    ReasonCode.DEADLINE_PASSED: ReasonRow(
        504,
        True,
        Scope.REQUEST,
        Stage.UPSTREAM,
        "allow more time, or ask for a shorter answer",
        "the deadline passed before the answer was complete",
        is_advised=False,
    ),
    ReasonCode.DRAINING: ReasonRow(
        503, True, Scope.GATEWAY, Stage.ADMISSION, _LATER, "this gateway is shutting down"
    ),
    ReasonCode.BAD_REQUEST: ReasonRow(
        400, False, Scope.REQUEST, Stage.PARSE, "correct the request", "the request is malformed"
    ),
    ReasonCode.NOT_FOUND: ReasonRow(
        404, False, Scope.REQUEST, Stage.PARSE, "correct the path", "there is no such path"
    ),
    ReasonCode.METHOD_NOT_ALLOWED: ReasonRow(
        405,
        False,
        Scope.REQUEST,
        Stage.PARSE,
        "use the method named in Allow",
        "this path does not take this method",
    ),
    ReasonCode.BODY_TOO_LARGE: ReasonRow(
        413, False, Scope.GATEWAY, Stage.PARSE, _SMALLER, "the request body is too large", "bytes"
    ),
}
