"""What is read of an embeddings request? The engine reads its texts, and generates none."""

from __future__ import annotations

from tokenweir.http.paths import chunks
from tokenweir.http.paths.form import BadRequest, Members, PathForm, Prompt
from tokenweir.http.paths.texts import bare_prompt

__all__ = ["EMBEDDINGS"]

# OpenAI's own bound.
_INPUTS_MAX = 2_048


def _prompt(members: Members) -> Prompt:
    prompt = bare_prompt(members, name="input")
    if prompt.prompts > _INPUTS_MAX:
        raise BadRequest(
            f"input has {prompt.prompts} entries, allowed: {_INPUTS_MAX}", param="input"
        )
    return Prompt(prompt.size)


EMBEDDINGS = PathForm(
    path="/v1/embeddings",
    prompt=_prompt,
    output_members=(),
    is_streamable=False,
    usage=chunks.NAMES,
    cut=chunks.CUT,
    account=chunks.ChunkAccount,
)
