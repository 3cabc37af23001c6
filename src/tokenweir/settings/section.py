"""What is every section of the file made of? A frozen model that takes no unknown key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Name", "Section", "row_of"]

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]


class Section(BaseModel):
    """One section; sub-classes name its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def row_of(table: Iterable[str]) -> Callable[[str], str]:
    """Return a check that a value is a row of one of the core's tables."""
    rows = tuple(table)

    def check(value: str) -> str:
        if value not in rows:
            raise ValueError(", ".join(rows))
        return value

    return check
