"""What may each class of requests take? A pool's ``classes``, over the core's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenweir.core.classes import CLASSES, ClassLimits, Interruptible
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority
from tokenweir.settings.quantities import Duration, Magnitude
from tokenweir.settings.section import Section

__all__ = ["ClassSettings", "ClassesSettings", "class_limits", "written_classes"]

# Names here, and in the core.
_FIELDS = {
    "ceiling": "ceiling_fraction",
    "floor": "floor_fraction",
    "wait": "wait_ns_max",
    "items": "items_max",
    "debt": "debt_tokens_max",
    "interactive": "is_interactive",
    "pausable": "is_pausable",
    "interruptible": "interruptible",
}


class ClassSettings(Section):
    """Bounds of one class; what is left out stays as it is by default.

    Attributes:
        ceiling: Share of the pool's limits up to which it may enter while a class above it was
            asked for in the last minute.
        floor: Share of dispatched tokens that it gets while it waits, whatever waits above it.
        wait: Longest wait.
        items: Requests that wait.
        debt: Tokens of all its requests that wait.
        interactive: Whether the pool's ``first_token_slo`` holds for it.
        pausable: Whether it pauses while interactive classes above it need the pool.
        interruptible: How far a running request gives way to an interactive one above it.
    """

    ceiling: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    floor: Annotated[float, Field(ge=0, lt=1, strict=True)] | None = None
    wait: Duration | None = None
    items: Magnitude | None = None
    debt: Magnitude | None = None
    interactive: Annotated[bool, Field(strict=True)] | None = None
    pausable: Annotated[bool, Field(strict=True)] | None = None
    interruptible: Literal["never", "before_first_byte", "always"] | None = None


class ClassesSettings(Section):
    """The four classes, the most urgent first."""

    P0: ClassSettings = ClassSettings()
    P1: ClassSettings = ClassSettings()
    P2: ClassSettings = ClassSettings()
    P3: ClassSettings = ClassSettings()


def class_limits(settings: ClassesSettings) -> Mapping[Priority, ClassLimits]:
    """Return the core's rows, with what is set put over the defaults.

    Raises:
        ConfigError: Together the floors leave nothing to share by urgency.
    """
    limits: dict[Priority, ClassLimits] = {}
    for priority, row in CLASSES.items():
        section = getattr(settings, priority.name)
        changes: dict[str, Any] = {
            theirs: getattr(section, ours)
            for ours, theirs in _FIELDS.items()
            if getattr(section, ours) is not None
        }
        if section.interruptible is not None:
            changes["interruptible"] = Interruptible(section.interruptible)
        limits[priority] = dataclasses.replace(row, **changes)
    floors = sum(row.floor_fraction for row in limits.values())
    if floors >= 1:
        raise ConfigError(f"the floors of all classes are {floors:g}, allowed: below 1 together")
    return limits


def written_classes(settings: ClassesSettings) -> Mapping[str, ClassSettings]:
    """Return the classes as they could have been written: with what holds where nothing is set.

    Raises:
        ConfigError: See ``class_limits``.
    """
    written: dict[str, ClassSettings] = {}
    for priority, row in class_limits(settings).items():
        values = {ours: getattr(row, theirs) for ours, theirs in _FIELDS.items()}
        values["interruptible"] = row.interruptible.value
        written[priority.name] = ClassSettings.model_construct(**values)
    return written
