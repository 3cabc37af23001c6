"""What is in use on one replica right now?

An account adds up the open reservations of one replica; capacity tests read it and only the ledger
writes it. ``occupied_tokens`` is our best knowledge of the engine's KV: what reservations hold so
far, what is draining after an early end, and the unattributed term of calibration.
"""

from __future__ import annotations

import copy
from collections import deque

from tokenweir.core.aimd import AimdConfig, AimdLimit
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.calibration import Calibration, CalibrationConfig
from tokenweir.core.headroom import Headroom, HeadroomConfig
from tokenweir.core.profile import EngineProfile, attention_pairs
from tokenweir.core.reading import Reading
from tokenweir.core.reservation import Reservation
from tokenweir.core.signals import Signals
from tokenweir.core.slowness import Slowness
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, ReplicaId

__all__ = ["Account"]

# Held tokens are remembered this finely and this far back, to be compared with a scrape that is
# some tenths of a second old.
_HISTORY_GRAIN_NS = 20 * NS_PER_MS
_HISTORY_SPAN_NS = 5 * NS_PER_S
_NEVER_NS = -(1 << 62)


class Account:
    """Sums over one replica's open reservations, in tokens, and what its engine says."""

    __slots__ = (
        "_grain_ns",
        "_grain_tokens",
        "_history",
        "batch",
        "cached_prompt_tokens",
        "calibration",
        "decoding",
        "draining_tokens",
        "engine_waiting_told",
        "entered_since_told",
        "headroom",
        "headroom_penalty_fraction",
        "held_prompt_tokens",
        "held_tokens",
        "in_flight",
        "is_healthy",
        "kv_tokens",
        "learns_slowness",
        "limit",
        "prefill_memo",
        "profile",
        "reading",
        "replica",
        "reserved_tokens",
        "slowness",
        "unattributed_tokens",
    )

    def __init__(
        self,
        replica: ReplicaId,
        *,
        kv_tokens: int | None,
        calibration: CalibrationConfig,
        profile: EngineProfile | None = None,
        tracks_batch: bool = False,
        is_guarded: bool = False,
        headroom: HeadroomConfig | None = None,
        limit: AimdConfig | None = None,
    ) -> None:
        """Start empty and healthy.

        Args:
            replica: Whose account this is.
            kv_tokens: Size of its KV pool, None until it is known.
            calibration: How its telemetry is weighed.
            profile: How fast it is, where that is known.
            tracks_batch: Whether each request's held and remaining tokens are kept.
            is_guarded: Whether anybody asks how fast it reads.
            headroom: What is kept free because predictions are wrong.
            limit: How the outer limit moves, None for none.
        """
        self.replica = replica
        self.kv_tokens = kv_tokens
        self.is_healthy = True
        self.in_flight = 0
        self.reserved_tokens = 0
        self.held_tokens = 0
        self.held_prompt_tokens = 0
        # Of those, what is taken to be in the prefix cache: held like the rest, but not read.
        self.cached_prompt_tokens = 0
        self.draining_tokens = 0
        self.profile = profile
        # What ``guards`` last worked out from how many decode, what they hold, and the slowness.
        self.prefill_memo: tuple[int, int, float, float] = (-1, 0, 0.0, 0.0)
        # Prompts whose first token has not come, and requests whose has.
        self.decoding = 0
        self.reading = Reading()
        self.batch = BatchPeak() if tracks_batch else None
        self.unattributed_tokens = 0
        self.headroom_penalty_fraction = 0.0
        self.calibration = Calibration(calibration)
        self.headroom = Headroom(headroom or HeadroomConfig())
        self.slowness = Slowness()
        self.learns_slowness = is_guarded and profile is not None
        self.limit = AimdLimit(limit) if limit is not None else None
        # Requests in the engine's own line at the last look, None while it tells nothing, and
        # what entered since.
        self.engine_waiting_told: int | None = None
        self.entered_since_told = 0
        # The grain that is not over yet: when it began, and what is held.
        self._grain_ns: Nanos = _NEVER_NS
        self._grain_tokens = 0
        self._history: deque[tuple[Nanos, int]] = deque()

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens whose first token has not come."""
        return self.reading.tokens

    @property
    def occupied_tokens(self) -> int:
        """KV tokens in use as far as we know, never below 0."""
        occupied = self.held_tokens + self.draining_tokens + self.unattributed_tokens
        return occupied if occupied > 0 else 0

    @property
    def kv_fraction(self) -> float:
        """Share of the pool in use, 0 while its size is unknown."""
        return self.occupied_tokens / self.kv_tokens if self.kv_tokens else 0.0

    @property
    def engine_waiting(self) -> int:
        """Requests inside the engine that it has not begun, as far as we know."""
        if self.engine_waiting_told is None:
            return self.in_flight - self.decoding
        return self.engine_waiting_told + self.entered_since_told

    def unloaded_first_token_ns(self, prompt_tokens: int) -> Nanos:
        """Return how long the idle engine needs for a first token, 0 where nobody knows."""
        return self.profile.unloaded_first_token_ns(prompt_tokens) if self.profile else 0

    def copy(self) -> Account:
        """Return one for a trial, from which reservations can be taken out. Cost O(n)."""
        other = copy.copy(self)
        other.reading = self.reading.copy()
        other.batch = None if self.batch is None else self.batch.copy()
        return other

    def put_in(self, reservation: Reservation, *, now_ns: Nanos) -> None:
        """Add what a reservation holds, which begins now."""
        reservation_id, estimate = reservation.reservation_id, reservation.estimate
        self.in_flight += 1
        self.reserved_tokens += estimate.prompt_tokens + estimate.output_tokens
        self.held_tokens += estimate.prompt_tokens
        self.held_prompt_tokens += estimate.prompt_tokens
        self.cached_prompt_tokens += estimate.cached_tokens
        self.reading.add(
            reservation_id,
            tokens=estimate.unread_tokens,
            pairs=attention_pairs(estimate.prompt_tokens, cached_tokens=estimate.cached_tokens),
            now_ns=now_ns,
        )
        if self.batch is not None:
            self.batch.add(
                reservation_id,
                held_tokens=estimate.prompt_tokens,
                remaining=estimate.output_tokens,
            )

    def take_out(self, reservation: Reservation, *, now_ns: Nanos) -> None:
        """Take away what a reservation holds, which ends now."""
        self.in_flight -= 1
        self.reserved_tokens -= reservation.estimate.tokens
        self.held_tokens -= reservation.held_tokens
        self.held_prompt_tokens -= reservation.estimate.prompt_tokens
        self.cached_prompt_tokens -= reservation.estimate.cached_tokens
        if reservation.is_prefilling:
            self.reading.remove(reservation.reservation_id, now_ns=now_ns)
        else:
            self.decoding -= 1
        if self.batch is not None:
            self.batch.remove(reservation.reservation_id)

    def note_entry(self) -> None:
        """Note that a request was sent there; its sums are in already."""
        self.entered_since_told += 1
        if self.limit is not None:
            self.limit.note_use(self.in_flight, kv_fraction=self.kv_fraction)

    def note_counts(self, signals: Signals, *, now_ns: Nanos) -> None:
        """Take in what the engine counts: its waiting line, and its preemptions."""
        if signals.waiting is not None:
            self.engine_waiting_told = max(0, signals.waiting)
            self.entered_since_told = 0
        total = signals.preemptions_total
        has_preempted = total is not None and self.headroom.note_preemptions(total, now_ns=now_ns)
        if has_preempted and self.limit is not None:
            self.limit.note_preemption()

    def usable_tokens(self, headroom_fraction: float) -> int:
        """Return how much of the pool may be promised, 0 while its size is unknown."""
        if self.kv_tokens is None:
            return 0
        return int(self.kv_tokens * (headroom_fraction - self.headroom_penalty_fraction))

    def refresh(self, *, now_ns: Nanos) -> None:
        """Note what is held now, and take back what telemetry no longer vouches for."""
        self.remember(now_ns=now_ns)
        if self.headroom.penalty_fraction > 0:
            self.headroom.refresh(now_ns=now_ns)
        limit = self.limit
        if limit is not None and now_ns >= limit.next_tick_ns:
            limit.advance(in_flight=self.in_flight, kv_fraction=self.kv_fraction, now_ns=now_ns)
        calibration = self.calibration
        if calibration.scraped_ns is None:
            return
        self.headroom_penalty_fraction = calibration.headroom_penalty_fraction(now_ns=now_ns)
        if self.unattributed_tokens < 0:
            self.unattributed_tokens = calibration.credit_tokens(
                held_prompt_tokens=self.held_prompt_tokens, now_ns=now_ns
            )

    def remember(self, *, now_ns: Nanos) -> None:
        """Note what is held now, for a scrape that will arrive later."""
        if now_ns - self._grain_ns >= _HISTORY_GRAIN_NS:
            history = self._history
            if self._grain_ns != _NEVER_NS:
                history.append((self._grain_ns, self._grain_tokens))
            while history and history[0][0] < now_ns - _HISTORY_SPAN_NS:
                history.popleft()
            self._grain_ns = now_ns
        # The last value of a grain stands for it: it is the one that silence after it keeps.
        self._grain_tokens = self.held_tokens + self.draining_tokens

    def held_tokens_at(self, then_ns: Nanos, *, now_ns: Nanos) -> int:
        """Return what was held at a past time; beyond the history, its nearest end."""
        if then_ns >= now_ns or self._grain_ns == _NEVER_NS:
            return self.held_tokens + self.draining_tokens
        if then_ns >= self._grain_ns or not self._history:
            return self._grain_tokens
        held = self._history[0][1]
        for sampled_ns, tokens in self._history:
            if sampled_ns > then_ns:
                break
            held = tokens
        return held
