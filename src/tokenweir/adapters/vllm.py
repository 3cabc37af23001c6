"""What does vLLM's ``/metrics`` page say about its KV cache and its queues?

Reads the current and the older names. A page that cannot be read tells nothing and is warned of
once; it never stops anything. An engine that answers HTTP at all is healthy: only silence, or a
refused connection, is not. A size that suddenly differs much from the last one is believed when
three looks in a row agree on it, unless the engine was away in between.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from dataclasses import dataclass

from tokenweir.core.signals import Signals
from tokenweir.core.units import NS_PER_S, Nanos, ReplicaId, s_from_ns
from tokenweir.ports.clock import Clock
from tokenweir.ports.upstream import Upstream, UpstreamBroken, UpstreamUnreachable

__all__ = ["VllmPage", "VllmTelemetry", "read_context", "read_page"]

_SAMPLE = re.compile(r"^(vllm:[a-z_]+)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
_CONFIG = "vllm:cache_config_info"
# Only lines that begin so are looked at closer; a page has a thousand others.
_PREFIXES = ("vllm:kv_cache_u", "vllm:gpu_cache_u", "vllm:num_", _CONFIG)

_PAGE_BYTES_MAX = 4 << 20
# Silence is believed after this many looks in a row.
_SILENT_LOOKS_MAX = 3
_LOOKS_BETWEEN_MODELS = 60
# No engine has more tokens or requests than this; what is larger is garbage.
_COUNT_MAX = 10**12
_COUNT = re.compile(r"[0-9]{1,13}")
# A size that differs by more than this factor has to be seen so many times in a row.
_SIZE_FACTOR_MAX = 2
_SIZE_LOOKS_MIN = 3
# After so many looks that did not tell it, the size is an old one.
_SIZE_STALE_LOOKS = 2

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VllmPage:
    """What one page told; None where it did not.

    Attributes:
        used_fraction: Of the KV cache, 0 to 1, weighed over all engines of the page.
        kv_tokens: Size of the KV cache, of all engines.
        running: Requests in the batch.
        waiting: Requests in the engine's queue.
        preemptions_total: Since its start.
    """

    used_fraction: float | None = None
    kv_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions_total: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return self == VllmPage()


def read_page(text: str) -> VllmPage:
    """Read a page in the Prometheus text format; what cannot be read is left out.

    Several engines on one page (data parallel ranks) add up; their usage is averaged.
    """
    sums: dict[str, list[float]] = {}
    kv_tokens = 0
    for line in text.splitlines():
        if not line.startswith(_PREFIXES):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, value = match[1], match[2] or "", _number(match[3])
        if name == _CONFIG:
            kv_tokens += _kv_tokens(dict(_LABEL.findall(labels)))
        elif value is not None:
            sums.setdefault(name, []).append(value)
    used = next((sums[name] for name in _USED if name in sums), None)
    preemptions = next((sums[name] for name in _PREEMPTIONS if name in sums), None)
    return VllmPage(
        used_fraction=_fraction(used),
        kv_tokens=kv_tokens if 0 < kv_tokens <= _COUNT_MAX else None,
        running=_total(sums.get(_RUNNING)),
        waiting=_total(sums.get(_WAITING)),
        preemptions_total=_total(preemptions),
    )


class VllmTelemetry:
    """Looks at one replica's ``/metrics``, and now and then at its ``/v1/models``.

    Attributes:
        context_tokens: The smallest context of the models it serves, None while it has not told.
    """

    def __init__(
        self,
        replica: ReplicaId,
        upstream: Upstream,
        *,
        clock: Clock,
        kv_tokens: int | None = None,
        timeout_ns: Nanos = NS_PER_S,
    ) -> None:
        """Prepare.

        Args:
            replica: Whose signals these are.
            upstream: Where its server is.
            clock: Monotonic time.
            kv_tokens: Size of the KV cache where it is set by hand, which then holds.
            timeout_ns: Longest time for one page, above 0. An overloaded engine has been seen to
                need half a second.
        """
        self._replica = replica
        self._upstream = upstream
        self._clock = clock
        self._timeout_s = s_from_ns(timeout_ns)
        self._silent_looks = 0
        self._kv_tokens = kv_tokens
        self._is_size_set = kv_tokens is not None
        self._doubted_tokens: int | None = None
        self._doubted_looks = 0
        self._looks_since_size: int | None = None
        self._was_away = False
        self._has_warned = False
        self._is_up = True
        self._looks_to_models = 0
        self.context_tokens: int | None = None

    async def look(self) -> Signals | None:
        """Ask once; see ``Telemetry``."""
        start_ns = self._clock()
        if self._looks_since_size is not None:
            self._looks_since_size += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                status, text = await self._get("/metrics")
        except UpstreamUnreachable:
            return self._down("refuses connections")
        except (TimeoutError, UpstreamBroken):
            return await self._after_silence()
        self._silent_looks = 0
        # The page was true some time between question and answer; the middle errs least.
        scraped_ns = (start_ns + self._clock()) // 2
        self._up()
        await self._look_at_models()
        if status != 200:
            # A provider without metrics, or one that guards them: it serves, but says nothing.
            return Signals(self._replica, scraped_ns)
        page = read_page(text)
        if page.is_empty:
            self._warn_once()
            return Signals(self._replica, scraped_ns)
        return self._signals(page, scraped_ns)

    def is_size_stale(self) -> bool:
        """Tell whether the size is one that the engine told once and has not repeated lately."""
        if self._is_size_set or self._looks_since_size is None:
            return False
        return self._doubted_looks > 0 or self._looks_since_size >= _SIZE_STALE_LOOKS

    def _signals(self, page: VllmPage, scraped_ns: Nanos) -> Signals:
        is_believed = self._believes(page.kv_tokens)
        # The fraction is one of the engine's own size, whatever we were told to believe.
        size = (page.kv_tokens or self._kv_tokens) if is_believed else None
        used = page.used_fraction
        return Signals(
            self._replica,
            scraped_ns,
            kv_used_tokens=None if size is None or used is None else round(used * size),
            kv_tokens=self._kv_tokens,
            running=page.running,
            waiting=page.waiting,
            preemptions_total=page.preemptions_total,
        )

    def _believes(self, told_tokens: int | None) -> bool:
        """Take in a told size; returns whether it is believed, or there was none."""
        if self._is_size_set or told_tokens is None:
            return True
        known = self._kv_tokens
        is_near = known is None or (
            told_tokens <= known * _SIZE_FACTOR_MAX and known <= told_tokens * _SIZE_FACTOR_MAX
        )
        if not is_near and not self._was_away:
            is_again = told_tokens == self._doubted_tokens
            self._doubted_looks = self._doubted_looks + 1 if is_again else 1
            self._doubted_tokens = told_tokens
            if self._doubted_looks < _SIZE_LOOKS_MIN:
                return False
        self._kv_tokens, self._looks_since_size = told_tokens, 0
        self._doubted_tokens, self._doubted_looks = None, 0
        self._was_away = False
        return True

    async def _look_at_models(self) -> None:
        """Learn the context; an engine that does not tell, or not yet, changes nothing."""
        self._looks_to_models -= 1
        if self._looks_to_models >= 0:
            return
        self._looks_to_models = _LOOKS_BETWEEN_MODELS
        try:
            async with asyncio.timeout(self._timeout_s):
                status, text = await self._get("/v1/models")
        except (TimeoutError, UpstreamBroken, UpstreamUnreachable):
            return
        if status == 200:
            self.context_tokens = read_context(text)

    async def _after_silence(self) -> Signals | None:
        """Count a look without an answer; after some, ask for health alone."""
        self._silent_looks += 1
        if self._silent_looks < _SILENT_LOOKS_MAX:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._get("/health")
        except (TimeoutError, UpstreamBroken, UpstreamUnreachable):
            return self._down("does not answer")
        self._up()
        return Signals(self._replica, self._clock())

    def _down(self, what: str) -> Signals:
        if self._is_up:
            _logger.warning("replica %s %s: nothing is sent to it", self._replica, what)
            self._is_up = False
        # It may come back with another model, or another size.
        self._looks_to_models = 0
        self._was_away = True
        return Signals(self._replica, self._clock(), is_healthy=False)

    def _up(self) -> None:
        if not self._is_up:
            _logger.warning("replica %s answers again", self._replica)
            self._is_up = True

    def _warn_once(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "replica %s: nothing of vLLM on its /metrics page, going on without telemetry",
                self._replica,
            )

    async def _get(self, target: str) -> tuple[int, str]:
        response = await self._upstream.send("GET", target, headers=(), body=None)
        try:
            page = bytearray()
            while chunk := await response.next_chunk():
                page += chunk
                if len(page) > _PAGE_BYTES_MAX:
                    break
            return response.status, page.decode("utf-8", "replace")
        finally:
            response.close()


def read_context(text: str) -> int | None:
    """Return the smallest ``max_model_len`` of a ``/v1/models`` body, None where none is told."""
    try:
        rows = json.loads(text)["data"]
        lengths = [row.get("max_model_len") for row in rows]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return min((n for n in lengths if type(n) is int and 0 < n <= _COUNT_MAX), default=None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) <= _COUNT_MAX else None


def _fraction(values: list[float] | None) -> float | None:
    """Return the mean of what are fractions; None where there is none among them."""
    # A little more than 1 is rounding, and what is no fraction says nothing.
    fractions = [value for value in values or () if -0.01 <= value <= 1.01]
    return min(max(sum(fractions) / len(fractions), 0.0), 1.0) if fractions else None


def _total(values: list[float] | None) -> int | None:
    return None if values is None else max(0, round(sum(values)))


def _kv_tokens(labels: dict[str, str]) -> int:
    """Return the pool's size of one engine from the labels of its configuration, 0 if unknown."""
    size = _label_count(labels, "kv_cache_size_tokens")
    return size or _label_count(labels, "num_gpu_blocks") * _label_count(labels, "block_size")


def _label_count(labels: dict[str, str], name: str) -> int:
    """Return a count from a label, 0 where it is none."""
    text = labels.get(name, "")
    return int(text) if _COUNT.fullmatch(text) else 0
