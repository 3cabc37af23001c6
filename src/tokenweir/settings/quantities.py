"""How are durations and sizes written? With a unit: ``500ms``, ``90k``, ``8MiB``."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["ByteCount", "Duration", "Magnitude", "parse_bytes", "parse_count", "parse_duration"]

# So few digits that nothing overflows on the way.
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)\s*")
_DURATIONS = {"ms": NS_PER_MS, "s": NS_PER_S, "m": 60 * NS_PER_S, "min": 60 * NS_PER_S}
_COUNTS = {"": 1, "k": 1_000, "M": 1_000_000}
_BYTES = {
    "": 1,
    "B": 1,
    "kB": 1_000,
    "MB": 1_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
# What a float still holds exactly. In nanoseconds it is 104 days.
_BIGGEST = 1 << 53


def parse_duration(value: Any) -> Nanos:
    """Read ``500ms``, ``5s`` or ``2m``, in nanoseconds.

    Raises:
        ValueError: It has no unit, is 0, or is something else; the text says what is allowed.
    """
    allowed = "a duration above 0 with a unit, as 500ms, 5s or 2m"
    duration_ns = _parse(value, _DURATIONS, allowed=allowed, most="100 days")
    if duration_ns <= 0:
        raise ValueError(allowed)
    return duration_ns


def parse_count(value: Any) -> int:
    """Read ``90k``, ``1.5M`` or a plain whole number.

    Raises:
        ValueError: It is something else.
    """
    return _parse(
        value, _COUNTS, allowed="a whole number, as 5600, 90k or 1.5M", most=str(_BIGGEST)
    )


def parse_bytes(value: Any) -> int:
    """Read ``8MiB``, ``64kB`` or a plain number of bytes.

    Raises:
        ValueError: It is something else.
    """
    return _parse(
        value, _BYTES, allowed="a size, as 65536, 64KiB or 8MiB", most=f"{_BIGGEST} bytes"
    )


def _parse(value: Any, units: dict[str, int], *, allowed: str, most: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(allowed)
    if isinstance(value, int) and value > _BIGGEST:
        # Python does not even write out an int of thousands of digits.
        raise ValueError(f"{allowed}, up to {most}")
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    if match is None or match[2] not in units:
        raise ValueError(allowed)
    scaled = float(match[1]) * units[match[2]]
    if scaled > _BIGGEST:
        raise ValueError(f"{allowed}, up to {most}")
    if scaled != int(scaled):
        raise ValueError(allowed)
    # A whole number is scaled as an int, since a float cannot hold every one of them.
    return int(match[1]) * units[match[2]] if match[1].isdigit() else int(scaled)


Duration = Annotated[int, BeforeValidator(parse_duration)]
Magnitude = Annotated[int, BeforeValidator(parse_count)]
ByteCount = Annotated[int, BeforeValidator(parse_bytes)]
