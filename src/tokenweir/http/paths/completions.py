"""What is read of a text completion's request?"""

from __future__ import annotations

from tokenweir.http.paths import chunks
from tokenweir.http.paths.form import Members, PathForm, Prompt
from tokenweir.http.paths.texts import bare_prompt

__all__ = ["COMPLETIONS"]


def _prompt(members: Members) -> Prompt:
    return bare_prompt(members, name="prompt")


COMPLETIONS = PathForm(
    path="/v1/completions",
    prompt=_prompt,
    output_members=("max_tokens",),
    count_members=("n", "best_of"),
    asks_usage=True,
    usage=chunks.NAMES,
    cut=chunks.CUT,
    account=chunks.ChunkAccount,
)
