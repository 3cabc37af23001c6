"""What differs between the paths that are admitted? The type of a row of ``PATHS``.

A path is a row: how the size of its prompt is read, which members declare the output, and how an
answer tells what it cost. Nothing else knows which path a request came by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tokenweir.http.paths.usage import UsageNames
from tokenweir.http.prompt_estimate import PromptSize
from tokenweir.http.stream_account import StreamAccount

__all__ = ["SEQUENCES_MAX", "BadRequest", "Members", "PathForm", "Prompt", "StreamAccounting"]

Members: TypeAlias = dict[str, Any]

# One of OpenAI's own bounds; without it one request could ask for any number of answers.
SEQUENCES_MAX = 128


class BadRequest(Exception):
    """The body cannot be what the API asks for.

    Attributes:
        param: The member that is wrong, or None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Prompt:
    """What was read of a request's prompt.

    Attributes:
        size: Of all prompts together.
        prompts: How many are answered one by one, each with the declared output.
    """

    size: PromptSize
    prompts: int = 1


class StreamAccounting(Protocol):
    """Starts the account of one stream."""

    def __call__(self, *, hides_usage: bool = False) -> StreamAccount:
        """Start at the beginning of a body; ``hides_usage``: the client did not ask for it."""
        ...


@dataclass(frozen=True, slots=True)
class PathForm:
    """One path.

    Attributes:
        path: As it stands in the request line.
        prompt: Reads the prompt of a parsed body; raises ``BadRequest`` where it has none.
        output_members: Which declare an answer's maximum; of several the largest holds, the first
            is written where there is none. Empty where no text is generated.
        count_members: Which ask for more than one answer to a prompt; the largest holds.
        is_streamable: Whether ``stream`` makes the answer an event stream.
        asks_usage: Whether a stream tells usage only to those who ask in ``stream_options``.
        usage: How an answer names what was used.
        cut: Found in a whole answer that was cut at the declared maximum.
        account: Reads a stream.
        error_members: What stands beside ``error`` in an error body.
    """

    path: str
    prompt: Callable[[Members], Prompt]
    output_members: tuple[str, ...]
    usage: UsageNames
    cut: re.Pattern[bytes]
    account: StreamAccounting
    count_members: tuple[str, ...] = ()
    is_streamable: bool = True
    asks_usage: bool = False
    error_members: Mapping[str, str] = field(default_factory=dict)
