"""What does a request tell of the attempts before it?

Rule: its number is ``x-tokenweir-attempt``, else what the common client libraries send; its body is
known by a hash; ``x-tokenweir-ticket`` goes out with a refusal that says when to come back, and
counts if it comes back with the same body. What is not sane is as if it were not there.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

from tokenweir.core.request import Request, ReturnTicket
from tokenweir.core.returns.ticket import binding, seal, unseal
from tokenweir.core.units import Nanos
from tokenweir.http.asgi import HeaderList, header

__all__ = ["TICKET_HEADER", "Tickets", "attempt_number", "body_hash"]

TICKET_HEADER = b"x-tokenweir-ticket"
_ATTEMPT_HEADERS = (b"x-tokenweir-attempt", b"x-stainless-retry-count")
_ATTEMPT_DIGITS_MAX = 3
_HASH_BYTES = 16


def attempt_number(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return the number of the attempt, 0 for the first, or None where the client tells none."""
    for name in _ATTEMPT_HEADERS:
        value = header(headers, name)
        if value and len(value) <= _ATTEMPT_DIGITS_MAX and value.isdigit():
            return int(value)
    return None


def body_hash(raw: bytes) -> bytes:
    """Return what stands for a body: no text can be read from it. About 1 us per KiB."""
    return hashlib.blake2b(raw, digest_size=_HASH_BYTES).digest()


class Tickets:
    """Seals tickets that go out, and checks those that come in."""

    def __init__(self, keys: Sequence[bytes], *, clock_offset_ns: Nanos = 0) -> None:
        """Keep the keys.

        Args:
            keys: The first seals, all are believed; not empty.
            clock_offset_ns: From the admitter's clock to the one that all who share the keys have.
        """
        self._keys = tuple(keys)
        self._offset_ns = clock_offset_ns

    def header_for(self, ticket: ReturnTicket, request: Request) -> HeaderList:
        """Return the header that hands a refused request its ticket."""
        moved = self._moved(ticket, self._offset_ns)
        text = seal(moved, bound_to=_bound_to(request), key=self._keys[0])
        return [(TICKET_HEADER, text.encode())]

    def with_ticket(self, request: Request, headers: Sequence[tuple[bytes, bytes]]) -> Request:
        """Return the request with the ticket that its headers hold, if it is genuine."""
        value = header(headers, TICKET_HEADER)
        if not value or not value.isascii():
            return request
        ticket = unseal(value.decode(), bound_to=_bound_to(request), keys=self._keys)
        if ticket is None:
            return request
        return dataclasses.replace(request, ticket=self._moved(ticket, -self._offset_ns))

    def _moved(self, ticket: ReturnTicket, by_ns: Nanos) -> ReturnTicket:
        return ReturnTicket(ticket.serial, ticket.opens_ns + by_ns, ticket.closes_ns + by_ns)


def _bound_to(request: Request) -> bytes:
    return binding(request.tenant, priority=request.priority, body_hash=request.body_hash)
