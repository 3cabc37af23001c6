"""Who takes part in a sweep, and which of them are tuned first?

A contender is a row of ``POLICIES``; a ``*`` behind its name says that its limit is tuned on every
workload (trace and profile) by the sweep itself, so that a rival is beaten at its best and not at
somebody's guess: first over a grid, then between the neighbours of the best there. One limit serves
all loads of a workload, as it would in a service. ``=N`` behind its name sets the limit instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import policy
from tokenweir.study.knobs import Setting, limited_policies

__all__ = ["Contender", "contenders_from"]


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy, and whether its limit is tuned, or what it is set to."""

    policy: str
    is_tuned: bool = False
    limit: int | None = None

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.policy + "*" * self.is_tuned + ("" if self.limit is None else f"={self.limit}")

    @property
    def setting(self) -> Setting:
        """What is turned from the start."""
        return () if self.limit is None else (("limit", self.limit),)


def contenders_from(text: str | Sequence[str], *, may_tune: bool = True) -> list[Contender]:
    """Read a comma-separated list of policies, a ``*`` behind those that are tuned.

    Raises:
        ConfigError: One is unknown, has no limit to tune or to set, or is named twice.
    """
    words = [word.strip() for word in text.split(",")] if isinstance(text, str) else list(text)
    contenders = [_contender(word, may_tune=may_tune) for word in words]
    for word in words:
        if words.count(word) > 1:
            raise ConfigError(f"policy {word!r} is named twice, allowed: once")
    return contenders


def _contender(word: str, *, may_tune: bool) -> Contender:
    bare, _, limit = word.partition("=")
    name = bare.removesuffix("*")
    policy(name)
    limited = limited_policies()
    if (limit or bare != name) and name not in limited:
        raise ConfigError(
            f"policy {name!r} has no limit to tune or to set, allowed: {', '.join(limited)}"
        )
    if bare != name and (limit or not may_tune):
        raise ConfigError(f"policy {word!r} is not allowed, allowed here: {name}, {name}=64")
    if not limit and "=" not in word:
        return Contender(name, is_tuned=bare != name)
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit) <= 1_000_000:
        raise ConfigError(f"policy {word!r} is not allowed, allowed: a limit from 1, as {name}=64")
    return Contender(name, limit=int(limit))
