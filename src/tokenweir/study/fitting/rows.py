"""How are measured tables read? CSV with a header, plain or gzip; mistakes name file and line."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenweir.core.errors import ConfigError

__all__ = ["Row", "Table", "chosen", "first_line", "read_table", "read_text"]

_FILE_CHARS_MAX = 64 << 20
_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; asking for a number that is none names the line."""

    where: str
    values: dict[str, str] = field(repr=False)

    def number(self, column: str) -> float:
        """Return a finite number.

        Raises:
            ConfigError: It is none.
        """
        text = self.values.get(column) or ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"{self.where}: {column} {text!r} is not allowed, allowed: a number")
        return value

    def positive(self, column: str) -> float:
        """Return a number above 0.

        Raises:
            ConfigError: It is none.
        """
        value = self.number(column)
        if value <= 0:
            raise ConfigError(f"{self.where}: {column} {value:g} is not allowed, allowed: above 0")
        return value


@dataclass(frozen=True, slots=True)
class Table:
    """A file's rows."""

    path: Path
    rows: tuple[Row, ...] = field(repr=False)


def read_text(path: Path) -> str:
    """Return a file's text, unpacked.

    Raises:
        ConfigError: It cannot be read, or is too long.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            text = file.read(_FILE_CHARS_MAX + 1)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    if len(text) > _FILE_CHARS_MAX:
        raise ConfigError(f"{path} is above {_FILE_CHARS_MAX:,} characters, allowed: less")
    return str(text)


def first_line(path: Path) -> str:
    """Return a file's first line.

    Raises:
        ConfigError: It cannot be read.
    """
    return read_text(path).partition("\n")[0].strip()


def read_table(path: Path) -> Table:
    """Read a CSV file.

    Raises:
        ConfigError: It cannot be read, or a line has not as many values as the header.
    """
    lines = csv.reader(read_text(path).splitlines())
    try:
        header = next(lines, [])
        rows = []
        for values in lines:
            where = f"{path} line {lines.line_num}"
            if len(values) != len(header):
                raise ConfigError(f"{where}: {len(values)} values, expected {len(header)}")
            rows.append(Row(where, dict(zip(header, values, strict=True))))
    except csv.Error as exc:
        raise ConfigError(f"{path}: cannot be read as CSV: {exc}") from None
    if not rows:
        raise ConfigError(f"{path}: no rows in it, expected at least one line of data")
    return Table(path, tuple(rows))


def chosen(
    rows: Iterable[Row], where: Sequence[tuple[str, str]], *, keys: Sequence[str]
) -> list[Row]:
    """Return the rows of one engine.

    Args:
        rows: Of a table that has several.
        where: Columns and the values that they must have.
        keys: Columns that tell engines apart.

    Raises:
        ConfigError: No row is left, or those of several engines; the text names a column and its
            values.
    """
    left = list(rows)
    for column, value in where:
        known = sorted({row.values.get(column, "") for row in left})
        if not any(column in row.values for row in left):
            allowed = ", ".join(left[0].values) if left else "other rows"
            raise ConfigError(f"--where {column}: no such column, allowed: {allowed}")
        left = [row for row in left if row.values.get(column) == value]
        if not left:
            raise ConfigError(f"--where {column}={value}: no such rows, allowed: {_some(known)}")
    for key in keys:
        known = sorted({row.values.get(key, "") for row in left})
        if len(known) > 1:
            raise ConfigError(
                f"the rows are of several engines, allowed: --where {key}= one of {_some(known)}"
            )
    return left


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(value or "(empty)" for value in values[:_SHOWN_MAX])
    return shown + (f" and {len(values) - _SHOWN_MAX} more" if len(values) > _SHOWN_MAX else "")
