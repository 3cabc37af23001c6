"""How large are prompts that are given bare: a text, texts, token ids, or lists of token ids?"""

from __future__ import annotations

from tokenweir.http.paths.content import text_size
from tokenweir.http.paths.form import BadRequest, Members, Prompt
from tokenweir.http.prompt_estimate import PromptSize

__all__ = ["bare_prompt"]


def bare_prompt(members: Members, *, name: str) -> Prompt:
    """Read the member that holds them.

    Raises:
        BadRequest: It is missing, empty, or something else.
    """
    prompt = members.get(name)
    if isinstance(prompt, str):
        return Prompt(PromptSize(text_size(prompt)))
    if not isinstance(prompt, list):
        raise BadRequest(f"{name} is missing, or neither a string nor a list", param=name)
    if not prompt:
        raise BadRequest(f"{name} is an empty list", param=name)
    if all(type(item) is int for item in prompt):
        return Prompt(PromptSize(0, exact_tokens=len(prompt)))
    if all(isinstance(item, str) for item in prompt):
        return Prompt(PromptSize(sum(map(text_size, prompt))), len(prompt))
    if all(isinstance(item, list) for item in prompt):
        if not all(type(token) is int for item in prompt for token in item):
            raise BadRequest(f"{name} has a list that is not of token ids", param=name)
        return Prompt(PromptSize(0, exact_tokens=sum(map(len, prompt))), len(prompt))
    raise BadRequest(f"{name} mixes strings, token ids and lists", param=name)
