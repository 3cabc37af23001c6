"""Which paths are admitted, and how is each read? One file per path, one row each."""

from __future__ import annotations

from tokenweir.http.paths.chat import CHAT
from tokenweir.http.paths.completions import COMPLETIONS
from tokenweir.http.paths.embeddings import EMBEDDINGS
from tokenweir.http.paths.form import PathForm
from tokenweir.http.paths.messages import MESSAGES
from tokenweir.http.paths.responses import RESPONSES

__all__ = ["PATHS"]

PATHS: dict[str, PathForm] = {
    form.path: form for form in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES)
}
