"""Which paths are there, and what answers each? Bare ASGI: a table of paths, no framework."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from tokenweir.adapters.prometheus import CONTENT_TYPE
from tokenweir.core.decision import Reject
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import NS_PER_S
from tokenweir.gateway.exchange import Exchange, Shared
from tokenweir.gateway.models import models_page
from tokenweir.http.asgi import HeaderList, Receive, Scope, Send, send_body, send_json
from tokenweir.http.headers import for_upstream, request_id
from tokenweir.http.paths import PATHS
from tokenweir.http.refusals import refusal

__all__ = ["GatewayApp", "send_refusal"]

_logger = logging.getLogger(__name__)

_Page = Callable[[Scope, Send], Awaitable[None]]


class GatewayApp:
    """The application that clients talk to."""

    def __init__(self, shared: Shared, *, shows_metrics: bool) -> None:
        """Prepare.

        Args:
            shared: What all requests share.
            shows_metrics: False where the admin listener has ``/metrics``.
        """
        self._shared = shared
        self.is_draining = False
        self._pages: dict[str, _Page] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/v1/models": self._models,
        }
        if shows_metrics:
            self._pages["/metrics"] = self._metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: PLR0917 - ASGI's own signature
        """Answer one request."""
        if scope["type"] != "http":
            # Websockets are switched off at the server, and there is no lifespan.
            return
        path, method = scope["path"], scope["method"]
        form = PATHS.get(path)
        if form is not None:
            if method == "POST":
                exchange = Exchange(self._shared, form, scope=scope, receive=receive, send=send)
                try:
                    await exchange.run()
                except Exception:
                    # A bug of ours: the server answers 500, and nobody would ever hear of it.
                    _logger.exception("a request ended in a bug")
                    raise
            else:
                await _send_not_allowed(send, b"POST")
            return
        page = self._pages.get(path)
        if page is None:
            await send_refusal(send, Reject(ReasonCode.NOT_FOUND))
        elif method not in ("GET", "HEAD"):
            await _send_not_allowed(send, b"GET, HEAD")
        else:
            await page(scope, send)

    async def _healthz(self, scope: Scope, send: Send) -> None:
        """Say that the process lives."""
        await send_json(send, {"status": "ok"})

    async def _readyz(self, scope: Scope, send: Send) -> None:
        """Say whether requests should be sent here: yes under overload, no while shutting down."""
        if self.is_draining:
            await send_refusal(send, Reject(ReasonCode.DRAINING, retry_after_ns=NS_PER_S))
        else:
            await send_json(send, {"status": "ready"})

    async def _metrics(self, scope: Scope, send: Send) -> None:
        """Show the Prometheus page."""
        page = self._shared.metrics.page()
        await send_body(send, page, status=200, content_type=CONTENT_TYPE)

    async def _models(self, scope: Scope, send: Send) -> None:
        """Say which models there are."""
        headers = for_upstream(
            scope["headers"], request_id=request_id(scope["headers"], default="models")
        )
        page = await models_page(self._shared.pools, headers=headers)
        if page is None:
            reject = Reject(ReasonCode.UPSTREAM_UNREACHABLE, retry_after_ns=NS_PER_S)
            await send_refusal(send, reject)
            return
        await send({
            "type": "http.response.start",
            "status": page.status,
            "headers": [*page.headers, (b"content-length", b"%d" % len(page.body))],
        })
        await send({"type": "http.response.body", "body": page.body})


async def send_refusal(
    send: Send, reject: Reject, *, message: str | None = None, headers: HeaderList | None = None
) -> None:
    """Answer with a refusal that no pool has to know of."""
    answer = refusal(reject, message=message)
    await send_body(
        send,
        answer.body,
        status=answer.status,
        content_type=b"application/json",
        headers=[*answer.headers, *(headers or ())],
    )


async def _send_not_allowed(send: Send, allowed: bytes) -> None:
    reject = Reject(ReasonCode.METHOD_NOT_ALLOWED)
    await send_refusal(send, reject, headers=[(b"allow", allowed)])
