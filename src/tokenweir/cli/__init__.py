"""The command line: ``tokenweir COMMAND``. One file per command."""

from __future__ import annotations

import errno
import os
import sys

from tokenweir.cli.process import Interrupts, flush_stdout, mend_streams
from tokenweir.core.errors import TokenweirError

__all__ = ["main"]

# What an OSError that reaches the top may be about: the output has nowhere to go.
_NO_ROOM = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)
_NO_EXTRA = (
    "the module {!r} is not installed, allowed: pip install 'tokenweir[gateway]' for serve, engine "
    "and demo, 'tokenweir[study]' for load and all that simulates"
)


def main() -> None:
    """Run a command; a mistake of the user's ends in one line and exit code 2."""
    mend_streams()
    # Set by the demo for its children, see study/demo/leash.py.
    if os.environ.pop("TOKENWEIR_END_WITH_STDIN", None) == "1":
        from tokenweir.study.demo.leash import watch_stdin

        watch_stdin()
    with Interrupts() as interrupts:
        code = _run(interrupts)
        reason = flush_stdout()
        if reason:
            _say(f"cannot write to stdout: {reason}")
        if reason is not None:
            code = code or 1
    sys.exit(code)


def _run(interrupts: Interrupts) -> int:
    """Run a command to its end, whatever that is, and return the exit code."""
    try:
        from tokenweir.cli.app import build_app

        app = build_app()
        interrupts.command_begins()
        app()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except KeyboardInterrupt:
        return 130
    except TokenweirError as error:
        _say(str(error))
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tokenweir":
            raise
        _say(_NO_EXTRA.format(error.name))
        return 2
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _say(f"cannot write: {error.strerror}")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"tokenweir: {text}\n")
