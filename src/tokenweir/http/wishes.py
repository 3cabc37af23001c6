"""What does a caller ask for, and how much of it is granted?

Rule: three headers are wishes, ``x-tokenweir-class``, ``x-tokenweir-wait-ms`` and
``x-tokenweir-deadline-ms``. A class is granted up to the most urgent one that the tenant may have;
a wait can only be shorter than the class's and the tenant's; a deadline counts from the request's
arrival to the end of its answer, and none is earlier than the tenant may have. What is granted
otherwise than it was asked for is told in ``x-tokenweir-clamped``; what cannot be read is an error
of the caller's.
Trade-off: a deadline that is too near is moved and not refused, since whoever sends it in order to
be served first has nothing from it then, and whoever means it still gets its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, div_ceil
from tokenweir.http.asgi import HeaderList, header
from tokenweir.http.paths.form import BadRequest

__all__ = [
    "CLAMPED_HEADER",
    "CLASS_WORDS",
    "Allowance",
    "Grant",
    "Wishes",
    "grant",
    "granted_class",
    "wishes_of",
]

CLAMPED_HEADER = b"x-tokenweir-clamped"
_CLASS_HEADER = b"x-tokenweir-class"
_WAIT_HEADER = b"x-tokenweir-wait-ms"
_DEADLINE_HEADER = b"x-tokenweir-deadline-ms"
_MS_DIGITS_MAX = 9
_SHOWN_CHARS_MAX = 40

# What the four are for, and how other gateways call what is above all.
CLASS_WORDS: dict[str, Priority] = {
    "p0": Priority.P0,
    "p1": Priority.P1,
    "p2": Priority.P2,
    "p3": Priority.P3,
    "system": Priority.P0,
    "interactive": Priority.P0,
    "normal": Priority.P1,
    "agent": Priority.P2,
    "batch": Priority.P3,
}
_CLASSES_ALLOWED = "P0 to P3, or system, interactive, normal, agent, batch"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for; None where nothing was. Durations count from the arrival."""

    priority: Priority | None = None
    wait_ns: Nanos | None = None
    deadline_ns: Nanos | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a tenant's callers may ask for.

    Attributes:
        highest: The most urgent class.
        default: The class of who asks for none, not above ``highest``.
        wait_ns_max: Longest wait beside the class's own, None for no other.
        deadline_ns_min: The nearest deadline, above 0.
    """

    highest: Priority = Priority.P1
    default: Priority = Priority.P1
    wait_ns_max: Nanos | None = None
    deadline_ns_min: Nanos = NS_PER_S


@dataclass(frozen=True, slots=True)
class Grant:
    """What is granted.

    Attributes:
        priority: Class.
        wait_ns_max: Longest wait, None for the class's own.
        deadline_ns: From the arrival, or None.
        clamped: Name and value of each wish that was granted otherwise.
    """

    priority: Priority
    wait_ns_max: Nanos | None
    deadline_ns: Nanos | None
    clamped: tuple[str, ...] = ()

    @property
    def headers(self) -> HeaderList:
        """What the caller is told of it, nothing where all was granted."""
        return [(CLAMPED_HEADER, ", ".join(self.clamped).encode())] if self.clamped else []


def wishes_of(headers: Sequence[tuple[bytes, bytes]]) -> Wishes:
    """Return what a request's headers ask for.

    Raises:
        BadRequest: A value cannot be read.
    """
    return Wishes(
        _class_in(headers),
        _duration_in(headers, _WAIT_HEADER, least_ms=0),
        _duration_in(headers, _DEADLINE_HEADER, least_ms=1),
    )


def granted_class(wishes: Wishes, allowance: Allowance) -> Priority:
    """Return the class that is granted: the tenant's default, or what was asked for, clamped."""
    return max(_wished(wishes, allowance), allowance.highest)


def grant(
    wishes: Wishes, allowance: Allowance, *, wait_ns_max_of: Callable[[Priority], Nanos]
) -> Grant:
    """Return what is granted of wishes.

    Args:
        wishes: Of a caller.
        allowance: Of its tenant.
        wait_ns_max_of: A class's longest wait.
    """
    clamped: list[str] = []
    priority = granted_class(wishes, allowance)
    if priority != _wished(wishes, allowance):
        clamped.append(f"class={priority.name}")
    wait_ns = allowance.wait_ns_max
    if wishes.wait_ns is not None:
        class_ns = wait_ns_max_of(priority)
        longest_ns = class_ns if wait_ns is None else min(class_ns, wait_ns)
        wait_ns = wishes.wait_ns
        if wait_ns > longest_ns:
            wait_ns = longest_ns
            clamped.append(f"wait-ms={wait_ns // NS_PER_MS}")
    deadline_ns = wishes.deadline_ns
    if deadline_ns is not None and deadline_ns < allowance.deadline_ns_min:
        deadline_ns = allowance.deadline_ns_min
        clamped.append(f"deadline-ms={div_ceil(deadline_ns, NS_PER_MS)}")
    return Grant(priority, wait_ns, deadline_ns, tuple(clamped))


def _wished(wishes: Wishes, allowance: Allowance) -> Priority:
    return allowance.default if wishes.priority is None else wishes.priority


def _class_in(headers: Sequence[tuple[bytes, bytes]]) -> Priority | None:
    value = header(headers, _CLASS_HEADER)
    if value is None:
        return None
    priority = CLASS_WORDS.get(value.strip().decode("latin-1").lower())
    if priority is None:
        raise _unreadable(_CLASS_HEADER, value, allowed=_CLASSES_ALLOWED)
    return priority


def _duration_in(
    headers: Sequence[tuple[bytes, bytes]], name: bytes, *, least_ms: int
) -> Nanos | None:
    value = header(headers, name)
    if value is None:
        return None
    digits = value.strip()
    # isdigit of bytes knows ASCII digits only.
    if digits.isdigit() and len(digits) <= _MS_DIGITS_MAX and int(digits) >= least_ms:
        return int(digits) * NS_PER_MS
    most_ms = 10**_MS_DIGITS_MAX - 1
    allowed = f"whole milliseconds, {least_ms} to {most_ms}"
    raise _unreadable(name, value, allowed=allowed)


def _unreadable(name: bytes, value: bytes, *, allowed: str) -> BadRequest:
    shown = ascii(value[:_SHOWN_CHARS_MAX].decode("latin-1"))
    return BadRequest(f"{name.decode()} is {shown}, allowed: {allowed}", param=name.decode())
