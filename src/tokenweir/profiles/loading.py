"""Which engine profiles are there, and what does a profile file say?

A profile is a TOML file whose keys are the fields of ``EngineProfile``. Those in ``data/`` have
names: a new file there is a new name, everywhere at once. Reading one costs some milliseconds, so
that is done when it is asked for; listing the names reads no file.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile

__all__ = ["PROFILE_NAMES", "load_profile", "profile", "profile_path"]

_DATA = Path(__file__).parent / "data"
_SUFFIX = ".toml"
# Far above what a profile needs; whoever names a trace by mistake is told at once.
_FILE_BYTES_MAX = 64 << 10
_FIELDS = {field.name: field for field in dataclasses.fields(EngineProfile)}
_TYPES = {"str": "text", "float": "a number", "Nanos": "a whole number", "int": "a whole number"}

PROFILE_NAMES: tuple[str, ...] = tuple(sorted(path.stem for path in _DATA.glob(f"*{_SUFFIX}")))


def profile(name: str) -> EngineProfile:
    """Return a profile by its name, or by the path of its file.

    Args:
        name: One of ``PROFILE_NAMES``, or a path: what ends in ``.toml`` or has a ``/`` is one.

    Raises:
        ConfigError: There is no such profile or file, or it is not right.
    """
    return load_profile(profile_path(name))


def profile_path(name: str) -> Path:
    """Return the file of a profile.

    Raises:
        ConfigError: It is neither a name nor a path.
    """
    if name in PROFILE_NAMES:
        return _DATA / f"{name}{_SUFFIX}"
    if "/" in name or name.endswith(_SUFFIX):
        return Path(name)
    raise ConfigError(
        f"unknown profile {name!r}, allowed: {', '.join(PROFILE_NAMES)}, or a file FILE{_SUFFIX}"
    )


@lru_cache(maxsize=64)
def load_profile(path: Path) -> EngineProfile:
    """Read and check a profile file.

    Raises:
        ConfigError: It cannot be read, is not TOML, or a key or value is not allowed; one line
            with the file and the key.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ConfigError(f"cannot read profile {path}: {reason}") from None
    if len(raw) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path} is above {_FILE_BYTES_MAX:,} bytes, allowed: a profile file")
    try:
        document = tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{path} is not TOML: {exc}") from None
    try:
        return EngineProfile(**_checked(document))
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """Return the values by field; ranges are the dataclass's own business."""
    unknown = next((key for key in document if key not in _FIELDS), None)
    if unknown is not None:
        raise ConfigError(f"unknown key {unknown!r}, allowed: {', '.join(_FIELDS)}")
    for name, field in _FIELDS.items():
        if name not in document:
            if field.default is dataclasses.MISSING:
                raise ConfigError(f"{name} is missing, allowed: {_TYPES[_kind(field)]}")
        elif not _is_of(_kind(field), document[name]):
            raise ConfigError(
                f"{name} {document[name]!r} is not allowed, allowed: {_TYPES[_kind(field)]}"
            )
    return document


def _kind(field: dataclasses.Field[Any]) -> str:
    # Annotations are text, as everywhere with postponed evaluation.
    return str(field.type)


def _is_of(kind: str, value: object) -> bool:
    if kind == "str":
        return isinstance(value, str) and bool(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if kind == "float" else isinstance(value, int)
