"""How is a profile written down? As TOML with the fields of ``EngineProfile``."""

from __future__ import annotations

import dataclasses
import json

from tokenweir.core.profile import EngineProfile

__all__ = ["profile_text"]


def profile_text(profile: EngineProfile) -> str:
    """Return the file of a profile; fields at their default are left out."""
    lines = []
    for field in dataclasses.fields(profile):
        value = getattr(profile, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            lines.append(f"{field.name} = {_literal(value)}\n")
    return "".join(lines)


def _literal(value: str | float) -> str:
    """Return a value in TOML, whose strings are those of JSON for what a name or a source holds."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{value:_}"
