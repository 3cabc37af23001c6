"""How large is what a prompt is made of? UTF-8 bytes of its texts, and its parts that are none.

Contents are a text, or parts of many kinds that are still growing in number. Rule: a part counts
with the texts in its known members, of which tool inputs are written into the prompt as JSON; a
part that has none - an image, a file, a reference to something stored - is one medium.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["content_size", "json_size", "text_size"]

_TEXT_MEMBERS = (
    "text", "thinking", "content", "summary", "name", "arguments", "input", "output", "refusal",
)  # fmt: skip


def text_size(text: str) -> int:
    """Return a text's UTF-8 bytes; lone surrogates count like others of their range."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def json_size(value: object) -> int:
    """Return about how many bytes a value has as JSON in a prompt, 0 where it is empty."""
    return len(json.dumps(value)) if value else 0


def content_size(content: object) -> tuple[int, int]:
    """Return text bytes and media of a content: a text, a list of parts, or a part."""
    if isinstance(content, str):
        return text_size(content), 0
    if isinstance(content, list):
        sizes = [content_size(part) for part in content]
        return sum(size[0] for size in sizes), sum(size[1] for size in sizes)
    if isinstance(content, dict):
        return _part_size(content)
    return 0, 0


def _part_size(part: dict[str, Any]) -> tuple[int, int]:
    source = part.get("source")
    if isinstance(source, dict):
        # A document of the Messages API; one that is text stands in the request as it is.
        part = {"text": source["data"]} if source.get("type") == "text" and "data" in source else {}
    text_bytes, media, is_text = 0, 0, False
    for name in _TEXT_MEMBERS:
        value = part.get(name)
        if value is None:
            continue
        is_text = True
        more_bytes, more_media = (
            (json_size(value), 0) if isinstance(value, dict) else content_size(value)
        )
        text_bytes += more_bytes
        media += more_media
    return text_bytes, media if is_text else media + 1
