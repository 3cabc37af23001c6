"""Recorded bodies, and how the network may cut them."""

import gzip
from itertools import pairwise
from pathlib import Path

from tokenweir.http.stream_account import StreamAccount

__all__ = ["cut", "feed_all", "recorded"]

_WIRE = Path(__file__).parents[1] / "fixtures" / "wire"


def recorded(name: str) -> bytes:
    """A recorded body."""
    plain = _WIRE / name
    return (
        plain.read_bytes()
        if plain.exists()
        else gzip.decompress((_WIRE / f"{name}.gz").read_bytes())
    )


def cut(body: bytes, places: list[int]) -> list[bytes]:
    """A body in pieces."""
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[a:b] for a, b in pairwise(edges) if a < b]


def feed_all(account: StreamAccount, pieces: list[bytes]) -> bytes:
    """Feed every piece and return what was passed on."""
    return b"".join([account.feed(piece) for piece in pieces] + [account.flush()])
