"""What is read of a request to the Messages API, in Anthropic's form?"""

from __future__ import annotations

from tokenweir.http.paths import message_events
from tokenweir.http.paths.content import content_size, json_size
from tokenweir.http.paths.form import BadRequest, Members, PathForm, Prompt
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["MESSAGES"]


def _prompt(members: Members) -> Prompt:
    messages = members.get("messages")
    if not isinstance(messages, list):
        raise BadRequest("messages is missing or not a list", param="messages")
    system = members.get("system")
    if not isinstance(system, (str, list, type(None))):
        raise BadRequest("system is neither a string nor a list", param="system")
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    text_bytes, media = content_size(contents)
    system_bytes, system_media = content_size(system)
    return Prompt(
        PromptSize(
            text_bytes + system_bytes + json_size(members.get("tools")),
            messages=len(messages) + (system is not None),
            media=media + system_media,
        )
    )


MESSAGES = PathForm(
    path="/v1/messages",
    prompt=_prompt,
    output_members=("max_tokens",),
    usage=message_events.NAMES,
    cut=message_events.CUT,
    account=message_events.MessageAccount,
    error_members={"type": "error"},
)
