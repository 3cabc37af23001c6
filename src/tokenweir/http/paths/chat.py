"""What is read of a chat completion's request?"""

from __future__ import annotations

from typing import Any

from tokenweir.http.paths import chunks
from tokenweir.http.paths.content import json_size, text_size
from tokenweir.http.paths.form import BadRequest, Members, PathForm, Prompt
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["CHAT"]


def _prompt(members: Members) -> Prompt:
    messages = members.get("messages")
    if not isinstance(messages, list):
        raise BadRequest("messages is missing or not a list", param="messages")
    text_bytes, media = 0, 0
    for message in messages:
        if isinstance(message, dict):
            more_bytes, more_media = _message_size(message)
            text_bytes += more_bytes
            media += more_media
    for name in ("tools", "functions"):
        # The engine writes them into the prompt as JSON.
        text_bytes += json_size(members.get(name))
    return Prompt(PromptSize(text_bytes, messages=len(messages), media=media))


def _message_size(message: dict[str, Any]) -> tuple[int, int]:
    """Return UTF-8 bytes of a message's texts, and its parts that are not text."""
    content = message.get("content")
    text_bytes, media = 0, 0
    if isinstance(content, str):
        text_bytes = text_size(content)
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                text_bytes += text_size(text)
            else:
                media += 1
    for name in ("tool_calls", "function_call"):
        text_bytes += json_size(message.get(name))
    return text_bytes, media


CHAT = PathForm(
    path="/v1/chat/completions",
    prompt=_prompt,
    output_members=("max_tokens", "max_completion_tokens"),
    count_members=("n", "best_of"),
    asks_usage=True,
    usage=chunks.NAMES,
    cut=chunks.CUT,
    account=chunks.ChunkAccount,
)
