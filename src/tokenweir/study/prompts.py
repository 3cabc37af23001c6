"""Which text makes a prompt of so many tokens? Public benchmark text, in several languages.

A prompt is a run of consecutive passages of one file from data/prompts, cut at a UTF-8 boundary so
that the emulated engine's rule (one message: ceil(bytes / 4) + 4) counts exactly what was asked
for. Another engine's tokenizer counts differently: its own ``usage`` is the truth then.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tokenweir.core.errors import ConfigError
from tokenweir.core.retry import Rng
from tokenweir.sim.traces import bundled
from tokenweir.testing.engine_text import BYTES_PER_TOKEN, TOKENS_PER_MESSAGE

__all__ = ["PROMPT_FILES", "PROMPT_TOKENS_MIN", "PromptLibrary"]

# A message that is not empty has at least one byte.
PROMPT_TOKENS_MIN = TOKENS_PER_MESSAGE + 1


def _tsv(line: str) -> str:
    return line.split("\t")[0]


def _turns(line: str) -> str:
    return "\n".join(json.loads(line)["turns"])


def _prompt(line: str) -> str:
    return str(json.loads(line)["prompt"])


def _instruction(line: str) -> str:
    return str(json.loads(line)["instruction"])


# file below data/prompts -> how a line gives a passage
PROMPT_FILES: dict[str, Callable[[str], str]] = {
    "mgsm_en.tsv": _tsv,
    "mgsm_zh.tsv": _tsv,
    "mgsm_ja.tsv": _tsv,
    "mgsm_ru.tsv": _tsv,
    "mgsm_bn.tsv": _tsv,
    "mgsm_te.tsv": _tsv,
    "mgsm_th.tsv": _tsv,
    "mt_bench_question.jsonl": _turns,
    "vicuna_bench_question.jsonl": _turns,
    "HumanEval.jsonl.gz": _prompt,
    "self_instruct_user_oriented_instructions.jsonl.gz": _instruction,
}


@dataclass(frozen=True, slots=True, repr=False)
class _Text:
    """The passages of one file, joined; ``starts`` are the byte offsets of the passages."""

    content: bytes
    starts: tuple[int, ...]


class PromptLibrary:
    """Passages in memory; makes prompts of any length from them."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read every file of ``PROMPT_FILES``, 1 MB together.

        Args:
            folder: Where the files are, the bundled ones where None.

        Raises:
            ConfigError: A file is missing or broken.
        """
        self._texts = [
            _read(folder / name if folder else bundled(f"prompts/{name}"), passage)
            for name, passage in PROMPT_FILES.items()
        ]
        self._ends = list(accumulate(len(text.starts) for text in self._texts))

    def __len__(self) -> int:
        """Count the passages a prompt can begin with."""
        return self._ends[-1]

    def prompt(self, prompt_tokens: int, *, rng: Rng) -> str:
        """Return a message text that counts ``prompt_tokens`` as a chat of one message.

        Args:
            prompt_tokens: At least ``PROMPT_TOKENS_MIN``.
            rng: Chooses the passage it begins with.

        Raises:
            ValueError: It is too short for a message with any text in it.
        """
        if prompt_tokens < PROMPT_TOKENS_MIN:
            raise ValueError(
                f"a prompt of {prompt_tokens} tokens is not possible, "
                f"{PROMPT_TOKENS_MIN} or more are"
            )
        size = (prompt_tokens - TOKENS_PER_MESSAGE) * BYTES_PER_TOKEN
        number = int(rng.random() * len(self))
        place = bisect_right(self._ends, number)
        text = self._texts[place]
        start = text.starts[number - self._ends[place]]
        content = text.content[start : start + size]
        while len(content) < size:
            content += text.content[: size - len(content)]
        # At most 3 bytes of a cut character go, which still counts as the same number of tokens.
        return content.decode("utf-8", "ignore")


def _read(path: Path, passage: Callable[[str], str]) -> _Text:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        lines = content.decode("utf-8").splitlines()
        passages = [passage(line).strip().encode("utf-8") for line in lines if line.strip()]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as exc:
        raise ConfigError(f"{path}: cannot be read as prompts: {exc}") from exc
    if not any(passages):
        raise ConfigError(f"{path}: no prompts in it")
    starts = [0, *accumulate(len(piece) + 1 for piece in passages)]
    return _Text(b"\n".join(passages) + b"\n", tuple(starts[:-1]))
