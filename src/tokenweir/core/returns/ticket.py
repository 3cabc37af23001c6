"""How does a client prove, to any gateway that shares the key, that it was told to come back now?

Model: a ticket names a slot: tenant, class, hash of the request's body, the times between which it
is good, and a serial. Its seal is HMAC-SHA256 over all of it. Times are in whatever clock the
sealers share.
Rule: a ticket counts if one of the keys made its seal (the first key seals, older ones are still
believed while keys are rotated), if it is bound to this tenant, class and body, if it is not over,
and if it was not used before.
Properties: what is not ours cannot be told from what was altered; INV-TICKET-1 (used tickets are
remembered until they are over, in a bounded memory, and while that is full none counts).
Trade-off: common clients do not send tickets back; see the record on how returns are recognised.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
import hmac
import struct
from collections.abc import Sequence

from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority, ReturnTicket
from tokenweir.core.units import Nanos

__all__ = ["KEY_BYTES_MIN", "SpentTickets", "binding", "seal", "unseal"]

KEY_BYTES_MIN = 16
_VERSION = 1
# Version, serial, opening and closing time in ns.
_CLAIMS = struct.Struct(">BQqq")
_SEAL_BYTES = 32
_TEXT_CHARS_MAX = 128


def binding(tenant: str, *, priority: Priority, body_hash: bytes) -> bytes:
    """Return what a ticket is bound to, as bytes in which no two parts can be confused."""
    name = tenant.encode()
    return b"%d:%d:%s:%s" % (int(priority), len(name), name, body_hash)


def seal(ticket: ReturnTicket, *, bound_to: bytes, key: bytes) -> str:
    """Return a ticket as text for a header.

    Raises:
        ConfigError: The key is too short.
    """
    claims = _CLAIMS.pack(_VERSION, ticket.serial, ticket.opens_ns, ticket.closes_ns)
    return base64.urlsafe_b64encode(claims + _seal(claims, bound_to=bound_to, key=key)).decode()


def unseal(text: str, *, bound_to: bytes, keys: Sequence[bytes]) -> ReturnTicket | None:
    """Return what a ticket says, or None where it is not genuine or belongs to something else."""
    if len(text) > _TEXT_CHARS_MAX:
        return None
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    if len(raw) != _CLAIMS.size + _SEAL_BYTES:
        return None
    claims, mark = raw[: _CLAIMS.size], raw[_CLAIMS.size :]
    if not any(hmac.compare_digest(mark, _seal(claims, bound_to=bound_to, key=k)) for k in keys):
        return None
    version, serial, opens_ns, closes_ns = _CLAIMS.unpack(claims)
    return ReturnTicket(serial, opens_ns, closes_ns) if version == _VERSION else None


def _seal(claims: bytes, *, bound_to: bytes, key: bytes) -> bytes:
    if len(key) < KEY_BYTES_MIN:
        raise ConfigError(
            f"a ticket key of {len(key)} bytes is not allowed, allowed: {KEY_BYTES_MIN} or more"
        )
    return hmac.digest(key, claims + bound_to, hashlib.sha256)


class SpentTickets:
    """Which tickets have been used."""

    def __init__(self, *, items_max: int) -> None:
        """Start with none used.

        Args:
            items_max: Used tickets that are not over yet; while there are so many, none counts.
        """
        self._items_max = items_max
        self._spent: set[ReturnTicket] = set()
        self._over: list[tuple[Nanos, int, ReturnTicket]] = []
        self._sequence = 0

    def __len__(self) -> int:
        """Count what is remembered."""
        return len(self._spent)

    def is_good(self, ticket: ReturnTicket, *, now_ns: Nanos) -> bool:
        """Tell whether a genuine ticket may be used now; changes nothing that can be seen."""
        while self._over and self._over[0][0] <= now_ns:
            self._spent.discard(heapq.heappop(self._over)[2])
        if not ticket.opens_ns <= now_ns < ticket.closes_ns or ticket in self._spent:
            return False
        return len(self._spent) < self._items_max

    def spend(self, ticket: ReturnTicket) -> None:
        """Use a ticket up; ``is_good`` was asked before."""
        self._sequence += 1
        self._spent.add(ticket)
        heapq.heappush(self._over, (ticket.closes_ns, self._sequence, ticket))
