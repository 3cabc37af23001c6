"""Whose request is it? The tenant of its API key, else the one of all who have none.

Keys are known by their SHA-256 only. Whether a key is good at all is for what stands behind us to
say: here it decides whose share is used. The key stands in ``Authorization``, where there is none
in ``x-api-key``, as clients of the Messages API send it; no other header is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenweir.core.lengths import LengthMode
from tokenweir.http.asgi import header
from tokenweir.http.wishes import Allowance

__all__ = ["Identities", "Identity"]

_BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class Identity:
    """A tenant, as its requests meet it.

    Attributes:
        tenant: Its name in the core.
        allowance: What its callers may ask for.
        length_mode: What is promised of its answers' lengths, None for the pool's.
    """

    tenant: str
    allowance: Allowance = field(default_factory=Allowance)
    length_mode: LengthMode | None = None


class Identities:
    """All tenants, by key."""

    def __init__(self, by_key: Mapping[bytes, Identity], *, others: Identity) -> None:
        """Keep them.

        Args:
            by_key: By the SHA-256 of the API key.
            others: Whose key is not among them.
        """
        self._by_key = dict(by_key)
        self._others = others

    def of(self, headers: Sequence[tuple[bytes, bytes]]) -> Identity:
        """Return whose a request is. About 1 us where there are keys."""
        if not self._by_key:
            return self._others
        key = _key_of(headers)
        if key is None:
            return self._others
        return self._by_key.get(hashlib.sha256(key).digest(), self._others)


def _key_of(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    value = header(headers, b"authorization")
    if value is None:
        return header(headers, b"x-api-key")
    if value[: len(_BEARER)].lower() != _BEARER:
        return None
    return value[len(_BEARER) :].strip()
