"""How is a value made that every request makes anew?

Rule: ``value`` makes a data class with slots that the type checker holds to be frozen, as it holds
any other value of the core to be; at run time nothing stops an assignment.
Trade-off: a frozen class sets each field by a call of its own, a seventh of a simulation.
What is made less often than once a request stays a frozen data class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["value"]

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def value(cls: type[_T]) -> type[_T]:
    """Make a value of a class: see the rule."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
