"""How many tokens has a text, how long is an answer, and what does it say?

Rules of the emulated engine, stated because it has no tokenizer and no model:
prompt tokens of a chat = sum over messages of ceil(UTF-8 bytes / 4) + 4; of a plain prompt
ceil(UTF-8 bytes / 4), at least 1; of a prompt of token ids their number. One output token is one
word. An answer whose length nobody stated has a lognormal length (median 200, sigma 0.6, cap
1,200) that depends on the prompt alone, so the same request always gets the same answer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from statistics import NormalDist

from tokenweir.core.units import div_ceil

__all__ = [
    "BYTES_PER_TOKEN",
    "TOKENS_PER_MESSAGE",
    "answer_words",
    "chat_prompt_tokens",
    "drawn_output_tokens",
    "text_tokens",
]

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4

_OUTPUT_TOKENS_MEDIAN = 200
_OUTPUT_SIGMA = 0.6
_OUTPUT_TOKENS_CAP = 1_200

_WORDS = (
    b"the water comes down from the hills and the weir holds it back until the channel below can "
    b"take more so nothing floods while every field still gets its share in turn and in time"
).split()


def text_tokens(text: str) -> int:
    """Return the tokens of a text by the emulated engine's rule."""
    return div_ceil(len(text.encode("utf-8", "surrogatepass")), BYTES_PER_TOKEN)


def chat_prompt_tokens(messages: Iterable[str]) -> int:
    """Return the prompt tokens of a chat, given each message's text."""
    return sum(text_tokens(text) + TOKENS_PER_MESSAGE for text in messages)


def drawn_output_tokens(prompt: str) -> int:
    """Return how long the answer to this prompt is, in tokens, at least 1."""
    digest = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    # Half a step away from both ends, where the inverse is infinite.
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2.0**64
    uniform = min(max(uniform, 1e-12), 1 - 1e-12)
    normal = NormalDist().inv_cdf(uniform)
    tokens = round(_OUTPUT_TOKENS_MEDIAN * math.exp(_OUTPUT_SIGMA * normal))
    return min(max(tokens, 1), _OUTPUT_TOKENS_CAP)


def answer_words(*, first: int, count: int) -> bytes:
    """Return ``count`` words from number ``first`` on, each with a space before it but word 0.

    The bytes are ASCII without quotes or backslashes: they can stand in JSON as they are.
    """
    size = len(_WORDS)
    text = b" ".join(_WORDS[index % size] for index in range(first, first + count))
    return text if first == 0 else b" " + text
