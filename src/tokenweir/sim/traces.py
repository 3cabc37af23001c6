"""Which requests did a real service see? Reads the traces this project ships, and their like.

Formats, told apart by what the first line looks like, plain or gzip:

* Azure CSV: ``TIMESTAMP,ContextTokens,GeneratedTokens``, wall-clock times;
* ServeGen CSV: ``arrival_s,tenant,prompt_tokens,output_tokens``;
* Mooncake JSON lines: ``timestamp`` in ms, ``input_length``, ``output_length``, and where known
  ``hash_ids``, an id for each of the prompt's blocks; these have 512 tokens, or ``block_size``.
  Where there is a ``session``, it is the tenant, and ids are the session's own.

Ids are numbered anew, so that one stands for its block and all before it, whatever the trace does.
Token counts come from different tokenizers; they are taken as the engine's own count.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from tokenweir.core.errors import ConfigError
from tokenweir.core.prefix import NO_PREFIX, Prefix
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["BUNDLED", "REQUEST_TOKENS_MAX", "Arrival", "bundled", "read_trace"]

# Above the context of any model there is; one prompt more would take a simulated engine for ever.
REQUEST_TOKENS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One unique request of a workload.

    Attributes:
        arrival_ns: From the start of the workload.
        prompt_tokens: At least 1.
        output_tokens: What it will really produce, at least 1.
        tenant: Who sent it, ``default`` where the trace does not tell.
        prefix: What its prompt begins with, where the trace tells.
    """

    arrival_ns: Nanos
    prompt_tokens: int
    output_tokens: int
    tenant: str = "default"
    prefix: Prefix = NO_PREFIX


# Short names for the traces in data/, usable wherever a FILE is asked for.
BUNDLED: dict[str, str] = {
    "agentic-coding": "agentic-coding/sessions_12.jsonl.gz",
    "azure-conv": "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz",
    "mooncake-conv": "mooncake/conversation_trace.jsonl.gz",
    "servegen-cheap": "servegen-m-large/cheap_flood_2h10m.csv.gz",
    "servegen-costly": "servegen-m-large/costly_flood_2h20m.csv.gz",
    "vtc-arena": "vtc-arena/arena_27_tenants.csv.gz",
}

_AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_SERVEGEN_HEADER = "arrival_s,tenant,prompt_tokens,output_tokens"

# In ns since 1970 it is the year 2262; what counts is the span, which whoever replays it checks.
_TIME_NS_MAX = 1 << 63
_LINE_CHARS_MAX = 1 << 20

# As Mooncake publishes them; a line may say otherwise.
_BLOCK_TOKENS = 512

_Fields = tuple[Nanos, int, int, str, Prefix]


def bundled(name: str) -> Path:
    """Return the path of a file shipped in data/, from a checkout or from an installed wheel.

    Args:
        name: A row of ``BUNDLED``, or a path below data/.

    Raises:
        ConfigError: There is no such file.
    """
    relative = BUNDLED.get(name, name)
    package = Path(__file__).resolve().parent.parent
    for root in (package / "data", package.parent.parent / "data"):
        if (root / relative).exists():
            return root / relative
    raise ConfigError(f"data file {relative} is not installed, allowed: {', '.join(BUNDLED)}")


def read_trace(path: str | Path, *, limit: int | None = None) -> list[Arrival]:
    """Read a whole trace, sorted by arrival, its first arrival at 0.

    Args:
        path: A file, or a row of ``BUNDLED``.
        limit: Read at most this many requests.

    Raises:
        ConfigError: The file cannot be read, or a line is broken; the text names file, line and
            what was expected.
    """
    if str(path) in BUNDLED:
        path = bundled(str(path))
    path = Path(path)
    try:
        arrivals = [Arrival(*fields) for fields in _rows(path, limit=limit)]
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise ConfigError(f"{path}: cannot be read as a trace: {reason}") from exc
    if not arrivals:
        raise ConfigError(f"{path}: no requests in it, expected at least one line of data")
    arrivals.sort(key=lambda a: a.arrival_ns)
    start_ns = arrivals[0].arrival_ns
    return [replace(a, arrival_ns=a.arrival_ns - start_ns) for a in arrivals]


def _rows(path: Path, *, limit: int | None) -> Iterator[_Fields]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        first = lines.readline(_LINE_CHARS_MAX).strip()
        parse, expected, is_header = _format_of(first, path=path)
        count = 0
        numbered: Iterator[tuple[int, str]] = enumerate(
            iter(lambda: lines.readline(_LINE_CHARS_MAX), ""), start=2
        )
        if not is_header:
            numbered = _chain_first(first, numbered)
        for number, line in numbered:
            if limit is not None and count >= limit:
                return
            text = line.strip()
            if not text:
                continue
            try:
                fields = parse(text)
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                raise ConfigError(
                    f"{path}:{number}: broken trace line {text[:80]!r}, expected {expected}"
                ) from None
            if fields[0] < 0 or fields[1] < 1 or fields[2] < 1:
                raise ConfigError(
                    f"{path}:{number}: time below 0 or token counts below 1 in {text[:80]!r}, "
                    f"expected {expected}"
                )
            if fields[0] > _TIME_NS_MAX or max(fields[1], fields[2]) > REQUEST_TOKENS_MAX:
                raise ConfigError(
                    f"{path}:{number}: time or token counts too large in {text[:80]!r}, allowed: "
                    f"up to {REQUEST_TOKENS_MAX:,} tokens and the year 2262"
                )
            count += 1
            yield fields


def _chain_first(first: str, rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield 1, first
    yield from rest


def _format_of(first: str, *, path: Path) -> tuple[Callable[[str], _Fields], str, bool]:
    """Return (parser of a line, what a line looks like, whether the first line is a header)."""
    if first == _AZURE_HEADER:
        return _azure, "TIME,PROMPT,OUTPUT as in 2023-11-16 18:15:46.6805900,374,44", True
    if first == _SERVEGEN_HEADER:
        return _servegen, "SECONDS,TENANT,PROMPT,OUTPUT as in 0.0023,c056,223,41", True
    if first.startswith("{"):
        expected = "a JSON object with timestamp (ms), input_length, output_length"
        return _Mooncake().read, expected, False
    raise ConfigError(
        f"{path}:1: unknown trace format {first[:80]!r}, expected the header {_AZURE_HEADER}, "
        f"the header {_SERVEGEN_HEADER}, or a JSON object"
    )


def _azure(line: str) -> _Fields:
    when, prompt, output = line.split(",")
    # strptime knows microseconds; the trace has a seventh digit.
    whole, _, fraction = when.partition(".")
    return (
        _epoch_s(whole) * NS_PER_S + int(fraction.ljust(9, "0")[:9] or 0),
        int(prompt),
        int(output),
        "default",
        NO_PREFIX,
    )


# Rows of one second stand together, and reading the time is most of reading a row.
@lru_cache(maxsize=1)
def _epoch_s(when: str) -> int:
    return int(datetime.strptime(when + "+0000", "%Y-%m-%d %H:%M:%S%z").timestamp())


def _servegen(line: str) -> _Fields:
    arrival_s, tenant, prompt, output = line.split(",")
    return round(float(arrival_s) * NS_PER_S), int(prompt), int(output), tenant, NO_PREFIX


class _Mooncake:
    """Reads lines of one trace; numbers its blocks in order of appearance."""

    def __init__(self) -> None:
        # (number of the block before or the session, id in the trace): number.
        self._numbers: dict[tuple[int | str, int], int] = {}

    def read(self, line: str) -> _Fields:
        """Return a request."""
        row = json.loads(line)
        prompt, output = row["input_length"], row["output_length"]
        if not (isinstance(prompt, int) and isinstance(output, int)):
            raise TypeError("lengths are ints")
        if not isinstance(row["timestamp"], (int, float)):
            raise TypeError("the timestamp is a number")
        session = row.get("session", "default")
        if not isinstance(session, str):
            raise TypeError("the session is a text")
        prefix = self._prefix(row.get("hash_ids", ()), row, session=session)
        return round(row["timestamp"] * NS_PER_MS), prompt, output, session, prefix

    def _prefix(self, ids: list[int], row: dict[str, object], *, session: str) -> Prefix:
        block_tokens = row.get("block_size", _BLOCK_TOKENS)
        if not isinstance(block_tokens, int) or block_tokens < 1:
            raise TypeError("a block has tokens")
        numbers = self._numbers
        chain: list[int] = []
        before: int | str = session
        for block in ids:
            if not isinstance(block, int):
                raise TypeError("block ids are ints")
            before = numbers.setdefault((before, block), len(numbers))
            chain.append(before)
        return Prefix(block_tokens, tuple(chain)) if chain else NO_PREFIX
