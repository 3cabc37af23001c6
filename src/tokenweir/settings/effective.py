"""What holds, of what was written and what was not? The whole file as it could have been written.

Properties: no secret is in it, since none is in the settings; read again it means the same.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator

from tokenweir.core.cost import Predicted
from tokenweir.core.lengths import LengthConfig
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.settings.classes import written_classes
from tokenweir.settings.compose import pool_policy
from tokenweir.settings.model import PoolSettings, Settings
from tokenweir.settings.quantities import parse_duration
from tokenweir.settings.tenants import DEFAULT_TENANT, TenantSettings, classes_of

__all__ = ["effective", "written_duration"]


def effective(settings: Settings) -> dict[str, Any]:
    """Return every setting with the value that holds, as a tree for YAML or JSON.

    Args:
        settings: Checked, relations too.
    """
    tree = _written(settings)
    tree["pools"] = [_pool(pool) for pool in settings.pools]
    tenants = list(settings.tenants)
    if all(tenant.name != DEFAULT_TENANT for tenant in tenants):
        tenants.append(TenantSettings(name=DEFAULT_TENANT))
    tree["tenants"] = [_tenant(tenant) for tenant in tenants]
    return tree


def written_duration(duration_ns: Nanos) -> str:
    """Return a length of time as it is written in the file."""
    if duration_ns % NS_PER_S == 0:
        return f"{duration_ns // NS_PER_S}s"
    millis, rest = divmod(duration_ns, NS_PER_MS)
    return f"{millis}ms" if rest == 0 else f"{millis}.{rest:06d}".rstrip("0") + "ms"


def _pool(pool: PoolSettings) -> dict[str, Any]:
    tree = _written(pool)
    for name, row in written_classes(pool.classes).items():
        tree["classes"][name] = _written(row)
        # What a class does not say of its wait is said by the queue.
        tree["classes"][name].setdefault("wait", tree["queue"]["wait"])
    if isinstance(pool_policy(pool).cost, Predicted):
        tree.setdefault("length_mode", LengthConfig().mode)
    return tree


def _tenant(tenant: TenantSettings) -> dict[str, Any]:
    highest, default = classes_of(tenant)
    return {**_written(tenant), "highest_class": highest.name, "default_class": default.name}


def _written(section: BaseModel) -> dict[str, Any]:
    """Return a section's values as they are written; what has none is left out."""
    tree: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value is None:
            continue
        if _is_duration(field.annotation, field.metadata):
            value = written_duration(value)
        elif isinstance(value, BaseModel):
            value = _written(value)
        elif isinstance(value, tuple):
            value = [_written(item) if isinstance(item, BaseModel) else item for item in value]
        tree[name] = value
    return tree


def _is_duration(annotation: Any, metadata: Any) -> bool:
    """Tell whether a field's values are read by ``parse_duration``, here or in a union."""
    if any(isinstance(m, BeforeValidator) and m.func is parse_duration for m in metadata):
        return True
    return any(
        _is_duration(argument, getattr(argument, "__metadata__", ()))
        for argument in get_args(annotation)
        if get_args(argument) or hasattr(argument, "__metadata__")
    )
