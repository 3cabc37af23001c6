"""What can an operator see and switch? On a loopback listener of its own, without credentials."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from tokenweir.adapters.prometheus import CONTENT_TYPE
from tokenweir.core.decision import Reject
from tokenweir.core.mode import Mode
from tokenweir.core.reasons import ReasonCode
from tokenweir.driver.pool import PoolDriver
from tokenweir.gateway.app import send_refusal
from tokenweir.gateway.exchange import Shared
from tokenweir.http.asgi import Receive, Scope, Send, header, send_body, send_json
from tokenweir.http.body import BodyTooLarge, ClientGone, read_body
from tokenweir.settings.effective import effective
from tokenweir.settings.model import Settings

__all__ = ["AdminApp"]

_BODY_BYTES_MAX = 4_096
_MODES = ", ".join(mode.value for mode in Mode)

_logger = logging.getLogger(__name__)


class AdminApp:
    """The application that operators talk to."""

    def __init__(self, shared: Shared, settings: Settings) -> None:
        """Prepare."""
        self._shared = shared
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: PLR0917 - ASGI's own signature
        """Answer one request."""
        if scope["type"] != "http":
            return
        match scope["method"], scope["path"]:
            case "GET", "/healthz":
                await send_json(send, {"status": "ok"})
            case "GET", "/metrics":
                page = self._shared.metrics.page()
                await send_body(send, page, status=200, content_type=CONTENT_TYPE)
            case "GET", "/admin/v1/ledger":
                pools = [_ledger(driver) for driver in self._shared.pools.drivers]
                await send_json(send, {"pools": pools})
            case "GET", "/admin/v1/refusals":
                pools = [_refusals(driver) for driver in self._shared.pools.drivers]
                await send_json(send, {"pools": pools})
            case "GET", "/admin/v1/settings":
                await send_json(send, effective(self._settings))
            case "POST", "/admin/v1/mode":
                await self._switch(scope, receive, send=send)
            case _:
                await send_refusal(send, Reject(ReasonCode.NOT_FOUND))

    async def _switch(self, scope: Scope, receive: Receive, *, send: Send) -> None:
        """Change the mode of every pool."""
        bad = Reject(ReasonCode.BAD_REQUEST)
        # A page in the operator's own browser can post here, but not with this type.
        content_type = header(scope["headers"], b"content-type") or b""
        if not content_type.startswith(b"application/json"):
            await send_refusal(send, bad, message="content-type is not application/json")
            return
        try:
            body = json.loads(await read_body(scope, receive, bytes_max=_BODY_BYTES_MAX))
            mode = Mode(body["mode"])
        except ClientGone:
            return
        except (ValueError, KeyError, TypeError, RecursionError, BodyTooLarge):
            await send_refusal(send, bad, message=f"mode is missing or unknown, allowed: {_MODES}")
            return
        for driver in self._shared.pools.drivers:
            driver.switch(mode)
        await send_json(send, {"mode": mode.value})


def _ledger(driver: PoolDriver) -> dict[str, Any]:
    """Return what one pool holds, in tokens; ``used_tokens`` is 0 when nothing is open."""
    snapshot = driver.snapshot()
    return {
        "name": driver.name,
        "mode": snapshot.mode.value,
        "queued": snapshot.queued,
        "queue_debt_tokens": snapshot.queue_debt_tokens,
        "rate_tokens_per_s": snapshot.rate_tokens_per_s,
        "used_tokens": snapshot.used_tokens,
        "in_flight": sum(view.in_flight for view in snapshot.accounts),
        "reserved_tokens": sum(view.reserved_tokens for view in snapshot.accounts),
        "draining_tokens": sum(view.draining_tokens for view in snapshot.accounts),
        "replicas": [dataclasses.asdict(view) for view in snapshot.accounts],
        "lengths": None if snapshot.lengths is None else dataclasses.asdict(snapshot.lengths),
    }


def _refusals(driver: PoolDriver) -> dict[str, Any]:
    """Return the last refusals of one pool, oldest first: sizes and reasons, no text."""
    return {
        "name": driver.name,
        "refusals": [
            {**dataclasses.asdict(row), "reason": row.reason.value} for row in driver.refusals()
        ],
    }
