"""Which models are there? What the engines of all pools say.

Rule: one replica of each pool is asked, healthy ones first. The answer of a single pool passes as
it is. Of several pools the lists become one: of each pool the models that some route sends to it,
since another pool would be asked for the rest in vain; each model once, in the order of the file.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenweir.core.request import PRIORITIES
from tokenweir.gateway.pools import Pool, Pools
from tokenweir.http.asgi import HeaderList, json_bytes
from tokenweir.http.headers import for_client
from tokenweir.http.paths import PATHS
from tokenweir.http.paths.usage import json_object
from tokenweir.ports.upstream import Upstream, UpstreamBroken, UpstreamError

__all__ = ["ModelsPage", "models_page"]

_OK = 200
_BYTES_MAX = 1 << 20
# A replica that hangs is not waited for longer; the next one may know.
_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """An engine's answer, or what was put together of several."""

    status: int
    headers: HeaderList
    body: bytes


async def models_page(pools: Pools, *, headers: HeaderList) -> ModelsPage | None:
    """Return the answer to a request for the models, None where no engine gives any.

    Args:
        pools: Asked at the same time.
        headers: Of the request, as an upstream gets them.
    """
    asked = pools.all
    answers = await asyncio.gather(*(_page_of(pool, headers=headers) for pool in asked))
    answered = [(pool, page) for pool, page in zip(asked, answers, strict=True) if page is not None]
    listed = [(pool, page) for pool, page in answered if page.status == _OK]
    if len(asked) == 1 or not listed:
        return next((page for _, page in answered), None)
    first = listed[0][1]
    return ModelsPage(_OK, first.headers, json_bytes(_merged(pools, listed)))


async def _page_of(pool: Pool, *, headers: HeaderList) -> ModelsPage | None:
    """Return the first answer of a pool's replicas, healthy ones first."""
    views = sorted(pool.driver.snapshot().accounts, key=lambda view: not view.is_healthy)
    for view in views:
        try:
            async with asyncio.timeout(_WAIT_S):
                return await _asked(pool.upstreams[view.replica], headers=headers)
        except (UpstreamError, TimeoutError):
            continue
    return None


async def _asked(upstream: Upstream, *, headers: HeaderList) -> ModelsPage:
    response = await upstream.send("GET", "/v1/models", headers=headers, body=None)
    body = bytearray()
    try:
        while chunk := await response.next_chunk():
            body += chunk
            if len(body) > _BYTES_MAX:
                raise UpstreamBroken("a list of models without an end")
    finally:
        response.close()
    passed = for_client(response.headers, keeps_length=False)
    return ModelsPage(response.status, passed, bytes(body))


def _merged(pools: Pools, listed: Sequence[tuple[Pool, ModelsPage]]) -> dict[str, Any]:
    """Return the first list with the models of all."""
    merged: dict[str, Any] = {"object": "list"}
    rows: dict[str, Any] = {}
    for pool, page in listed:
        members = json_object(page.body) or {}
        merged = {**members, **merged}
        data = members.get("data")
        for row in data if isinstance(data, list) else ():
            name = row.get("id") if isinstance(row, dict) else None
            if isinstance(name, str) and name not in rows and _is_sent_to(pools, pool, model=name):
                rows[name] = row
    return {**merged, "data": list(rows.values())}


def _is_sent_to(pools: Pools, pool: Pool, *, model: str) -> bool:
    """Whether some request for a model goes to a pool."""
    return any(
        pools.route(path, model, priority=priority).pool is pool
        for path, priority in itertools.product(PATHS, PRIORITIES)
    )
