"""How are the figures of finished jobs kept, so that a sweep that was interrupted can go on?

One line of JSON per finished job in DIR/jobs.jsonl, written as soon as the job ends: job, figures
and a hash of the code they depend on. Lines of other code are left alone and not used; a last line
that was cut short by a kill is not used either. Without a directory all stays in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tokenweir.core.errors import ConfigError
from tokenweir.study.sweep.measure import Figures, Job, fingerprint, key_of

__all__ = ["Store"]

_FILE = "jobs.jsonl"


class Store:
    """Figures by job."""

    def __init__(self, directory: Path | None = None) -> None:
        """Read what is there.

        Raises:
            ConfigError: The directory cannot be made, read or written.
        """
        self._figures: dict[str, Figures] = {}
        self._file: IO[str] | None = None
        self.path = None if directory is None else directory / _FILE
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self._read(self.path.read_text(encoding="utf-8"))
            self._file = self.path.open("a", encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"--out {directory}: cannot be used: {reason}, allowed: a directory"
            ) from None

    def _read(self, text: str) -> None:
        for line in text.splitlines():
            try:
                row = json.loads(line)
                code, job, figures = row["code"], row["job"], row["figures"]
            except (ValueError, KeyError, TypeError):
                continue
            if code == fingerprint():
                self._figures[json.dumps(job, sort_keys=True, separators=(",", ":"))] = figures
        if text and not text.endswith("\n"):
            # What is appended must not continue the line that was cut short.
            with Path(str(self.path)).open("a", encoding="utf-8") as file:
                file.write("\n")

    def get(self, job: Job) -> Figures | None:
        """Return a job's figures, or None where it has not ended yet."""
        return self._figures.get(key_of(job))

    def add(self, job: Job, figures: Figures) -> None:
        """Keep a job's figures, on disk at once."""
        key = key_of(job)
        self._figures[key] = figures
        if self._file is not None:
            row = {"code": fingerprint(), "job": json.loads(key), "figures": figures}
            self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
            self._file.flush()

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs that have not ended yet, each once."""
        by_key = {key_of(job): job for job in jobs}
        return [job for key, job in by_key.items() if key not in self._figures]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
