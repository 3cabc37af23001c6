"""Which reservations are open, and what do they hold?

Model: a reservation r holds a permit and e_r estimated tokens on one replica from ``reserve`` until
it is settled, released or its lease is lost. An account's used = sum of e_r over open r.
Properties: INV-LEDGER-1 (used = sum over open reservations, never negative), INV-LEDGER-2 (closed
exactly once, by id), INV-LEDGER-3 (0 after all are closed and drained), INV-LEDGER-4 (a tracked
batch is what is open).
Rule: permits and reserved tokens return at once on every end. After an early end the KV that the
engine may still hold stays as ``draining_tokens`` for ``abort_time_ns``.
Trade-off: a lease gives a dead owner's work back within its length, at the price of one batched
renewal by every live owner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tokenweir.core.account import Account
from tokenweir.core.aimd import AimdConfig
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.feedback import note_end, note_entry, note_first_token, note_pace
from tokenweir.core.headroom import HeadroomConfig
from tokenweir.core.profile import EngineProfile
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.reservation import HOLDING, Event, Reservation, State
from tokenweir.core.signals import Signals
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, ReplicaId, ReservationId

__all__ = ["Ledger", "LedgerConfig", "Settlement"]


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """How long holds last.

    Attributes:
        lease_ns: A reservation that is not renewed for this long is lost; None where owner and
            ledger die together, as in a simulation.
        abort_time_ns: How long KV stays draining after an early end; at most 1 s.
        interrupt_time_ns: The same after an interruption, where that is shorter; an engine drops a
            request at one of its next steps. Somebody urgent waits for it, and if it takes longer
            waits for the rest inside the engine.
        closed_max: Closed reservations remembered, so that a late or second settle is answered.
    """

    lease_ns: Nanos | None = 10 * NS_PER_S
    abort_time_ns: Nanos = 500 * NS_PER_MS
    interrupt_time_ns: Nanos = 100 * NS_PER_MS
    closed_max: int = 16_384

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.lease_ns is not None and self.lease_ns <= 0:
            raise ConfigError(f"lease_ns {self.lease_ns} is not allowed, allowed: above 0, or none")
        if not 0 <= self.abort_time_ns <= NS_PER_S:
            raise ConfigError(f"abort_time_ns {self.abort_time_ns} is not allowed, allowed: 0..1 s")
        if not 0 <= self.interrupt_time_ns <= NS_PER_S:
            raise ConfigError(
                f"interrupt_time_ns {self.interrupt_time_ns} is not allowed, allowed: 0..1 s"
            )
        if self.closed_max < 1:
            raise ConfigError(f"closed_max {self.closed_max} is not allowed, allowed: 1 or more")


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a reservation ended.

    Attributes:
        reservation_id: Which one.
        reserved_tokens: What it held.
        usage: What was really used.
        outcome: How the request ended.
        is_late: Its lease had been lost, so nothing was released by this settle.
    """

    reservation_id: ReservationId
    reserved_tokens: int
    usage: Usage
    outcome: Outcome
    is_late: bool = False

    @property
    def returned_tokens(self) -> int:
        """Reserved minus used: given back where positive, overrun where negative."""
        return self.reserved_tokens - self.usage.tokens

    @property
    def over_reservation_ratio(self) -> float:
        """Reserved divided by used; infinite where nothing was used."""
        used = self.usage.tokens
        return self.reserved_tokens / used if used else float("inf")


class Ledger:
    """All reservations of one pool, by id, and one account per replica."""

    def __init__(self, config: LedgerConfig | None = None) -> None:
        """Start with no replicas."""
        self._config = config or LedgerConfig()
        self.accounts: dict[ReplicaId, Account] = {}
        self._open: dict[ReservationId, Reservation] = {}
        # Ordered by renewal: the head is the next lease to run out.
        self._leases: dict[ReservationId, Nanos] = {}
        self._expired: dict[ReservationId, Reservation] = {}
        self._closed: dict[ReservationId, Settlement | None] = {}
        # A heap of (when, number, whose): interruptions drain sooner than what is cancelled.
        self._draining: list[tuple[Nanos, int, Reservation]] = []
        self._drains = 0

    def add_replica(
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
    ) -> Account:
        """Open an account; see ``Account`` for the arguments.

        Raises:
            ContractError: The replica has one already.
        """
        if replica in self.accounts:
            raise ContractError(f"replica {replica} has an account already")
        account = Account(
            replica,
            kv_tokens=kv_tokens,
            calibration=calibration,
            profile=profile,
            tracks_batch=tracks_batch,
            is_guarded=is_guarded,
            headroom=headroom,
            limit=limit,
        )
        self.accounts[replica] = account
        return account

    def reserve(
        self,
        reservation_id: ReservationId,
        replica: ReplicaId,
        *,
        estimate: Estimate,
        now_ns: Nanos,
        is_guess: bool = False,
    ) -> Reservation:
        """Open a hold of ``estimate`` tokens and one permit on a replica.

        Args:
            reservation_id: Used once.
            replica: Where.
            estimate: What it holds.
            now_ns: Monotonic time.
            is_guess: Whether the estimate was made before anything was known.

        Raises:
            ContractError: The id is open, or was closed a short while ago; nothing is changed.

        Invariants: INV-LEDGER-1.
        """
        if reservation_id in self._open or reservation_id in self._expired:
            raise ContractError(f"reservation {reservation_id} is open already")
        if reservation_id in self._closed:
            raise ContractError(f"reservation {reservation_id} was closed, an id is used once")
        account = self.accounts[replica]
        lease_ns = self._config.lease_ns
        lease_expires_ns = 0 if lease_ns is None else now_ns + lease_ns
        reservation = Reservation(
            reservation_id,
            replica,
            estimate=estimate,
            start_ns=now_ns,
            lease_expires_ns=lease_expires_ns,
            is_guess=is_guess,
        )
        self._open[reservation_id] = reservation
        if lease_ns is not None:
            self._leases[reservation_id] = lease_expires_ns
        account.put_in(reservation, now_ns=now_ns)
        note_entry(reservation, account)
        return reservation

    def first_token(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Note that the engine answers; a second call, or one after the end, changes nothing."""
        reservation = self._open.get(reservation_id)
        if reservation is not None and reservation.state is State.RESERVED:
            reservation.move(Event.FIRST_TOKEN)
            note_first_token(reservation, self.accounts[reservation.replica], now_ns=now_ns)
            if reservation.is_prefilling:
                self._end_prefill(reservation, now_ns=now_ns)

    def progress(
        self,
        replica: ReplicaId,
        tokens_by_reservation: Mapping[ReservationId, int],
        *,
        now_ns: Nanos,
    ) -> list[ReservationId]:
        """Take in how far a replica's streams are, and renew their leases.

        Args:
            replica: Where they run; a reservation of another replica is left alone.
            tokens_by_reservation: Output tokens so far; never counted down. Cost O(n).
            now_ns: Monotonic time.

        Returns:
            Those that have produced all that was predicted, where the batch is tracked.

        Raises:
            ContractError: There is no such replica.
        """
        account = self.accounts.get(replica)
        if account is None:
            raise ContractError(f"replica {replica} is unknown")
        lease_ns = self._config.lease_ns
        batch, limit = account.batch, account.limit
        outgrown: list[ReservationId] = []
        for reservation_id, output_tokens in tokens_by_reservation.items():
            reservation = self._open.get(reservation_id)
            if reservation is None or reservation.replica != replica:
                continue
            grown = reservation.estimate.prompt_tokens + output_tokens - reservation.held_tokens
            if grown > 0:
                reservation.held_tokens += grown
                account.held_tokens += grown
                # Of an answer that is not streamed, nobody tells the first token.
                if reservation.is_prefilling:
                    self._end_prefill(reservation, now_ns=now_ns)
                if batch is not None and batch.produce(reservation_id, grown):
                    outgrown.append(reservation_id)
                if limit is not None and now_ns >= reservation.pace_due_ns:
                    note_pace(reservation, limit, now_ns=now_ns)
            if lease_ns is not None:
                del self._leases[reservation_id]
                self._leases[reservation_id] = reservation.lease_expires_ns = now_ns + lease_ns
        return outgrown

    def lengthen(self, reservation_id: ReservationId, *, remaining: int) -> None:
        """Replace what an open request is taken to produce yet, where the batch is tracked."""
        reservation = self._open.get(reservation_id)
        if reservation is not None:
            batch = self.accounts[reservation.replica].batch
            if batch is not None:
                batch.lengthen(reservation_id, remaining)

    def settle(
        self, reservation_id: ReservationId, usage: Usage, *, outcome: Outcome, now_ns: Nanos
    ) -> Settlement:
        """Replace a reservation's estimate by the measured usage, once.

        Args:
            reservation_id: An open reservation, or one closed a short while ago.
            usage: As the engine counted it; may exceed the estimate.
            outcome: How the request ended.
            now_ns: Monotonic time.

        Returns:
            The settlement; again the recorded one for a repeated settle with equal usage.

        Raises:
            ContractError: The id is unknown, was released, or was settled with different usage; the
                ledger is unchanged.

        Invariants: INV-LEDGER-1, INV-LEDGER-2.
        """
        reservation = self._open.get(reservation_id)
        if reservation is None:
            return self._settle_again_or_late(reservation_id, usage, outcome=outcome)
        account = self.accounts[reservation.replica]
        note_end(reservation, account, usage=usage, outcome=outcome, now_ns=now_ns)
        if outcome is Outcome.INTERRUPTED:
            self._close_early(reservation, drains_ns=self.interrupt_time_ns, now_ns=now_ns)
        elif outcome.is_early:
            drains_ns = self._config.abort_time_ns
            self._close_early(reservation, drains_ns=drains_ns, now_ns=now_ns)
        else:
            reservation.move(Event.SETTLE)
            self._close(reservation, now_ns=now_ns)
        settlement = Settlement(reservation_id, reservation.estimate.tokens, usage, outcome)
        self._record(reservation_id, settlement)
        return settlement

    def release(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Give back a whole hold that was never used.

        Raises:
            ContractError: It is not open, or the engine has begun to answer it.
        """
        reservation = self._open.get(reservation_id)
        if reservation is None:
            raise ContractError(f"reservation {reservation_id} is not open, it cannot be released")
        reservation.move(Event.RELEASE)
        self._close(reservation, now_ns=now_ns)
        self._record(reservation_id, None)

    def interrupt(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """End a hold whose request will be sent again; its id may be used once more.

        Raises:
            ContractError: It is not open.
        """
        reservation = self._open.get(reservation_id)
        if reservation is None:
            raise ContractError(f"reservation {reservation_id} is not open, it cannot be put back")
        self._close_early(reservation, drains_ns=self.interrupt_time_ns, now_ns=now_ns)

    @property
    def interrupt_time_ns(self) -> Nanos:
        """How long KV stays draining after an interruption."""
        return min(self._config.abort_time_ns, self._config.interrupt_time_ns)

    def drained_by(self, replica: ReplicaId, *, then_ns: Nanos) -> int:
        """Return how much KV of a replica will have drained by then. Cost O(what drains)."""
        return sum(
            reservation.held_tokens
            for due_ns, _, reservation in self._draining
            if due_ns <= then_ns and reservation.replica == replica
        )

    def expire(self, *, now_ns: Nanos) -> list[Reservation]:
        """Take back every hold whose lease has run out; returns them, oldest first."""
        lost: list[Reservation] = []
        while self._leases:
            reservation_id = next(iter(self._leases))
            if self._leases[reservation_id] > now_ns:
                break
            reservation = self._open[reservation_id]
            reservation.move(Event.LEASE_LOST)
            self._close(reservation, now_ns=now_ns)
            self._expired[reservation_id] = reservation
            if len(self._expired) > self._config.closed_max:
                del self._expired[next(iter(self._expired))]
            lost.append(reservation)
        return lost

    def drain(self, *, now_ns: Nanos) -> bool:
        """Let go of KV whose abort time has passed; returns whether anything was let go."""
        has_drained = False
        while self._draining and self._draining[0][0] <= now_ns:
            _, _, reservation = heapq.heappop(self._draining)
            reservation.move(Event.DRAINED)
            self.accounts[reservation.replica].draining_tokens -= reservation.held_tokens
            has_drained = True
        return has_drained

    def calibrate(self, signals: Signals, *, now_ns: Nanos) -> bool:
        """Take in what an engine says of its KV; returns whether drift is alarming.

        Reservations are left alone: only the account's unattributed term moves. Of garbage the
        least is believed: a pool has tokens and holds no more than those, a reading is not
        negative, a look not in the future.
        """
        account = self.accounts[signals.replica]
        account.note_counts(signals, now_ns=now_ns)
        if signals.kv_tokens is not None and signals.kv_tokens > 0:
            if account.kv_tokens not in {None, signals.kv_tokens}:
                account.calibration.forget()
                account.unattributed_tokens = 0
            account.kv_tokens = signals.kv_tokens
        if signals.kv_used_tokens is None:
            if account.calibration.fade(now_ns=now_ns):
                account.unattributed_tokens = account.calibration.unattributed_tokens
            return False
        real_tokens = max(0, signals.kv_used_tokens)
        if account.kv_tokens is not None:
            real_tokens = min(real_tokens, account.kv_tokens)
        scraped_ns = min(signals.scraped_ns, now_ns)
        is_alarming = account.calibration.calibrate(
            real_tokens=real_tokens + max(0, signals.waiting_prompt_tokens or 0),
            held_tokens=account.held_tokens_at(scraped_ns, now_ns=now_ns),
            held_prompt_tokens=account.held_prompt_tokens,
            kv_tokens=account.kv_tokens or 0,
            preemptions_total=signals.preemptions_total,
            scraped_ns=scraped_ns,
        )
        account.unattributed_tokens = account.calibration.unattributed_tokens
        return is_alarming

    def next_wakeup_ns(self) -> Nanos | None:
        """Return when the next lease or drain is due, or None."""
        due = [self._draining[0][0]] if self._draining else []
        if self._leases:
            due.append(next(iter(self._leases.values())))
        return min(due) if due else None

    def open_on(self, replica: ReplicaId) -> Iterable[Reservation]:
        """Yield the open reservations of one replica. Cost O(all open)."""
        return (r for r in self._open.values() if r.replica == replica)

    def knows(self, reservation_id: ReservationId) -> bool:
        """Tell whether the id is open, lost or lately closed, so that ``reserve`` refuses it."""
        return (
            reservation_id in self._open
            or reservation_id in self._closed
            or reservation_id in self._expired
        )

    def __contains__(self, reservation_id: object) -> bool:
        """Whether the reservation is open."""
        return reservation_id in self._open

    def __len__(self) -> int:
        """Count the open reservations."""
        return len(self._open)

    def check_invariants(self) -> None:
        """Recount everything. Cost O(open).

        Raises:
            InvariantError: INV-LEDGER-1 or INV-LEDGER-4 does not hold.
        """
        for replica, account in self.accounts.items():
            mine = [r for r in self._open.values() if r.replica == replica]
            draining = sum(r.held_tokens for _, _, r in self._draining if r.replica == replica)
            expected = (
                len(mine),
                sum(r.estimate.tokens for r in mine),
                sum(r.held_tokens for r in mine),
                sum(r.estimate.prompt_tokens for r in mine),
                sum(r.estimate.cached_tokens for r in mine),
                sum(r.estimate.unread_tokens for r in mine if r.is_prefilling),
                sum(not r.is_prefilling for r in mine),
                draining,
            )
            actual = (
                account.in_flight,
                account.reserved_tokens,
                account.held_tokens,
                account.held_prompt_tokens,
                account.cached_prompt_tokens,
                account.prefill_tokens,
                account.decoding,
                account.draining_tokens,
            )
            if actual != expected:
                raise InvariantError(
                    f"account of {replica} says (in flight, reserved, held, held prompt, "
                    f"cached prompt, unread, decoding, draining) "
                    f"{actual}, its reservations add up to {expected}"
                )
            batch = account.batch
            counted = (account.in_flight, account.held_tokens)
            if batch is not None and (len(batch), batch.held_tokens) != counted:
                raise InvariantError(
                    f"batch of {replica} says ({len(batch)} requests, {batch.held_tokens} held), "
                    f"its account says {counted}"
                )
        if any(r.state not in HOLDING for r in self._open.values()):
            raise InvariantError("an open reservation is in a state that holds nothing")

    def _end_prefill(self, reservation: Reservation, *, now_ns: Nanos) -> None:
        reservation.is_prefilling = False
        account = self.accounts[reservation.replica]
        account.reading.remove(reservation.reservation_id, now_ns=now_ns)
        account.decoding += 1

    def _close_early(self, reservation: Reservation, *, drains_ns: Nanos, now_ns: Nanos) -> None:
        """End a hold whose KV the engine may keep for a moment."""
        reservation.move(Event.SETTLE_EARLY if drains_ns else Event.SETTLE)
        self._close(reservation, now_ns=now_ns)
        if drains_ns:
            self.accounts[reservation.replica].draining_tokens += reservation.held_tokens
            self._drains += 1
            heapq.heappush(self._draining, (now_ns + drains_ns, self._drains, reservation))

    def _close(self, reservation: Reservation, *, now_ns: Nanos) -> None:
        del self._open[reservation.reservation_id]
        self._leases.pop(reservation.reservation_id, None)
        self.accounts[reservation.replica].take_out(reservation, now_ns=now_ns)

    def _settle_again_or_late(
        self, reservation_id: ReservationId, usage: Usage, *, outcome: Outcome
    ) -> Settlement:
        expired = self._expired.pop(reservation_id, None)
        if expired is not None:
            expired.move(Event.SETTLE)
            settlement = Settlement(
                reservation_id, expired.estimate.tokens, usage, outcome, is_late=True
            )
            self._record(reservation_id, settlement)
            return settlement
        recorded = self._closed.get(reservation_id)
        if recorded is None:
            what = "was released" if reservation_id in self._closed else "is unknown"
            raise ContractError(f"reservation {reservation_id} {what}, it cannot be settled")
        if recorded.usage != usage:
            raise ContractError(
                f"reservation {reservation_id} was settled with {recorded.usage.tokens} tokens, "
                f"it cannot be settled again with {usage.tokens}"
            )
        return recorded

    def _record(self, reservation_id: ReservationId, settlement: Settlement | None) -> None:
        closed = self._closed
        closed[reservation_id] = settlement
        if len(closed) > self._config.closed_max:
            del closed[next(iter(closed))]
