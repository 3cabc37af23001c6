"""Where do secrets come from? The environment or a file, never the settings file itself.

What stands in the file is where a secret is, so that the file can be shown, copied and kept in
version control. Nothing of a secret's place in it is ever repeated in a message: people write the
secret itself there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from tokenweir.core.errors import ConfigError
from tokenweir.settings.section import Section

__all__ = ["KeySource", "SecretSource", "TicketSettings", "read_secret", "ticket_keys"]

_SECRET_BYTES_MAX = 4_096
# 32 hexadecimal digits are 128 bits; so many random ones have fewer than 8 different ones about
# once in ten million times.
_TICKET_KEY_CHARS_MIN = 32
_TICKET_KEY_DISTINCT_MIN = 8
_STRONG = f"{_TICKET_KEY_CHARS_MIN} random characters or more, as openssl rand -hex 32 prints them"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("the name of an environment variable")
    return value


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise ValueError("64 hexadecimal digits, as sha256sum prints them")
    return value.lower()


class SecretSource(Section):
    """Where one secret is: exactly one of these.

    Attributes:
        env: Name of an environment variable.
        file: Path of a file that holds nothing else; a relative one starts where the gateway was
            started.
    """

    env: Annotated[str, AfterValidator(_variable)] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(type(self).model_fields)}")
        return self


class KeySource(SecretSource):
    """Where an API key is, or what it hashes to.

    Attributes:
        sha256: Hexadecimal SHA-256 of the key, so that the key itself need not be here at all.
    """

    sha256: Annotated[str, AfterValidator(_sha256)] | None = None


class TicketSettings(Section):
    """What seals return tickets.

    Attributes:
        keys: The first seals, all are believed, so that keys can be changed one after the other.
            Gateways that share them believe each other's tickets, also after a restart. Without
            any, each process has one of its own for as long as it runs.
    """

    keys: Annotated[tuple[SecretSource, ...], Field(max_length=8)] = ()


def read_secret(source: SecretSource, *, environ: Mapping[str, str] | None = None) -> str:
    """Return a secret, without the line end behind it.

    Args:
        source: Where it is; not a hash.
        environ: The process's own environment where None.

    Raises:
        ConfigError: It is not there, empty or no text; without any of it.
    """
    if source.env is not None:
        text = (os.environ if environ is None else environ).get(source.env)
        if text is None:
            raise ConfigError(f"environment variable {source.env} is not set")
        where = f"environment variable {source.env}"
    else:
        assert source.file is not None
        where = f"file {source.file}"
        try:
            with Path(source.file).open("rb") as file:
                raw = file.read(_SECRET_BYTES_MAX + 1)
            text = raw.decode()
        except (OSError, ValueError) as error:
            # A UnicodeDecodeError, which is a ValueError, would quote what it could not read.
            reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
            raise ConfigError(f"{where} cannot be read: {reason}") from None
    text = text.strip()
    if not text:
        raise ConfigError(f"{where} is empty")
    if len(text.encode()) > _SECRET_BYTES_MAX:
        raise ConfigError(f"{where} is longer than {_SECRET_BYTES_MAX} bytes")
    return text


def ticket_keys(
    settings: TicketSettings, *, path: str, environ: Mapping[str, str] | None = None
) -> Sequence[bytes]:
    """Return the keys that seal and check tickets, the sealing one first; empty for none.

    Args:
        settings: Where they are.
        path: Of the section, for messages.
        environ: The process's own environment where None.

    Raises:
        ConfigError: One is missing, weak, or stands twice.
    """
    keys: list[bytes] = []
    for index, source in enumerate(settings.keys):
        where = f"{path}.keys[{index}]"
        try:
            text = read_secret(source, environ=environ)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if len(text) < _TICKET_KEY_CHARS_MIN:
            raise ConfigError(f"{where} has {len(text)} characters, allowed: {_STRONG}")
        distinct = len(set(text))
        if distinct < _TICKET_KEY_DISTINCT_MIN:
            raise ConfigError(f"{where} has {distinct} different characters, allowed: {_STRONG}")
        if text.encode() in keys:
            raise ConfigError(f"{where} is the same as another key, allowed: each once")
        keys.append(text.encode())
    return keys
