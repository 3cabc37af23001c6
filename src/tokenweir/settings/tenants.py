"""Who are the tenants, what does each get, and what may its callers ask for?

Whose requests carry none of the keys named here belong to the tenant ``default``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import LengthMode
from tokenweir.core.request import Priority
from tokenweir.core.tenants import TenantConfig, TenantLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.settings.quantities import Duration, Magnitude
from tokenweir.settings.secrets import KeySource, read_secret
from tokenweir.settings.section import Name, Section

__all__ = [
    "DEFAULT_TENANT",
    "TenantSettings",
    "check_tenants",
    "classes_of",
    "tenant_config",
    "tenants_by_key",
]

DEFAULT_TENANT = "default"
# Shorter keys can be found by trying.
_API_KEY_CHARS_MIN = 16

ClassName = Literal["P0", "P1", "P2", "P3"]


class TenantSettings(Section):
    """One tenant.

    Attributes:
        name: ``default`` for whoever has no key of another tenant.
        keys: API keys, as clients send them in ``Authorization: Bearer`` or ``x-api-key``.
        weight: Its share against other tenants of its class.
        concurrency: Most requests in the engines of one pool at once.
        highest_class: The most urgent class that its callers may ask for, else ``default_class``.
        default_class: Of requests that ask for none: P1, or the highest where that is lower.
        wait: Longest wait of its requests, where its class's is longer.
        shortest_deadline: An earlier deadline is taken for this one: what no engine can keep is
            asked for only to be served before others.
        length_mode: What is promised of its answers' lengths, where the pool predicts them.
    """

    name: Name
    keys: Annotated[tuple[KeySource, ...], Field(max_length=64)] = ()
    weight: Annotated[float, Field(gt=0, le=1e6, strict=True)] = 1.0
    concurrency: Annotated[Magnitude, Field(ge=1)] | None = None
    highest_class: ClassName | None = None
    default_class: ClassName | None = None
    wait: Duration | None = None
    shortest_deadline: Duration = NS_PER_S
    length_mode: LengthMode | None = None


def classes_of(tenant: TenantSettings) -> tuple[Priority, Priority]:
    """Return the most urgent class that its callers may ask for, and the one of who asks none."""
    highest, default = tenant.highest_class, tenant.default_class
    if default is None:
        named = Priority.P1 if highest is None else max(Priority.P1, Priority[highest])
    else:
        named = Priority[default]
    return (named if highest is None else Priority[highest]), named


def check_tenants(tenants: Sequence[TenantSettings], *, path: str) -> None:
    """Check what no tenant's section can see alone, but for the keys themselves.

    Raises:
        ConfigError: A name stands twice, nobody could be a tenant, or its classes are upside down.
    """
    seen: set[str] = set()
    for index, tenant in enumerate(tenants):
        where = f"{path}[{index}]"
        if tenant.name in seen:
            raise ConfigError(f"{where}.name is {tenant.name!r}, which another is called already")
        seen.add(tenant.name)
        if not tenant.keys and tenant.name != DEFAULT_TENANT:
            raise ConfigError(
                f"{where}.keys is missing, so that nobody is {tenant.name!r}, "
                f"allowed: 1 or more entries, or the name {DEFAULT_TENANT}"
            )
        highest, default = classes_of(tenant)
        if default < highest:
            raise ConfigError(
                f"{where}.default_class is {default.name}, "
                f"allowed: {highest.name}, its highest_class, or below"
            )


def tenant_config(tenants: Sequence[TenantSettings]) -> TenantConfig:
    """Return the core's limits; checked by ``check_tenants``."""
    return TenantConfig({
        tenant.name: TenantLimits(weight=tenant.weight, in_flight_max=tenant.concurrency)
        for tenant in tenants
    })


def tenants_by_key(
    tenants: Sequence[TenantSettings], *, path: str, environ: Mapping[str, str] | None = None
) -> Mapping[bytes, str]:
    """Return each key's tenant, by the key's SHA-256.

    Args:
        tenants: Checked by ``check_tenants``.
        path: Of the list, for messages.
        environ: The process's own environment where None.

    Raises:
        ConfigError: A key is missing, too short, cannot be in a header, or stands twice.
    """
    names: dict[bytes, str] = {}
    for index, tenant in enumerate(tenants):
        for number, source in enumerate(tenant.keys):
            where = f"{path}[{index}].keys[{number}]"
            digest = _digest(source, where=where, environ=environ)
            if digest in names:
                raise ConfigError(f"{where} is a key of {names[digest]!r} already")
            names[digest] = tenant.name
    return names


def _digest(source: KeySource, *, where: str, environ: Mapping[str, str] | None) -> bytes:
    if source.sha256 is not None:
        return bytes.fromhex(source.sha256)
    try:
        text = read_secret(source, environ=environ)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len(text) < _API_KEY_CHARS_MIN:
        raise ConfigError(
            f"{where} has {len(text)} characters, allowed: {_API_KEY_CHARS_MIN} or more"
        )
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ConfigError(f"{where} cannot be sent in a header, allowed: ASCII without spaces")
    return hashlib.sha256(text.encode()).digest()
