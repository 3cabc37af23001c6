"""What is read of a request to the Responses API?

A request may go on from what the server has stored (``previous_response_id``, ``conversation``, a
stored ``prompt``). How long that is nobody tells before its usage does: only what stands in the
request is counted, at least the floor of every estimate.
"""

from __future__ import annotations

from tokenweir.http.paths import response_events
from tokenweir.http.paths.content import content_size, json_size
from tokenweir.http.paths.form import BadRequest, Members, PathForm, Prompt
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["RESPONSES"]

_STORED = ("previous_response_id", "conversation", "prompt")


def _prompt(members: Members) -> Prompt:
    if members.get("background") not in (None, False):
        raise BadRequest(
            "background is not served here: send the request without it, and keep the connection",
            param="background",
        )
    entries = members.get("input")
    if entries is None and not any(members.get(name) for name in _STORED):
        raise BadRequest("input is missing", param="input")
    if not isinstance(entries, (str, list, type(None))):
        raise BadRequest("input is neither a string nor a list", param="input")
    text_bytes, media = content_size(entries)
    text_bytes += content_size(members.get("instructions"))[0] + json_size(members.get("tools"))
    messages = len(entries) if isinstance(entries, list) else 1
    return Prompt(PromptSize(text_bytes, messages=messages, media=media))


RESPONSES = PathForm(
    path="/v1/responses",
    prompt=_prompt,
    output_members=("max_output_tokens",),
    usage=response_events.NAMES,
    cut=response_events.CUT,
    account=response_events.ResponseAccount,
    error_members={"type": "error"},
)
