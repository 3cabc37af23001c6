"""How are independent runs spread over processes, and how do these end, whatever ends the parent?

Workers ignore Ctrl-C, which a terminal sends to all of them: the parent decides. It kills them when
it leaves early. Where it is killed itself, each worker sees it go and ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tokenweir.core.errors import TokenweirError

__all__ = ["map_jobs"]

Job = TypeVar("Job")
Result = TypeVar("Result")

_ENDINGS = (signal.SIGINT, signal.SIGTERM)


def map_jobs(
    run: Callable[[Job], Result], jobs: Sequence[Job], *, processes: int
) -> Generator[Result, None, None]:
    """Yield each job's result in order, several at a time where that is asked for.

    Whoever may leave before the last result closes the generator, which ends the workers.

    Raises:
        TokenweirError: A worker was killed, as by a machine short of memory.
    """
    if processes > 1 and len(jobs) > 1:
        yield from _in_processes(run, jobs, processes=min(processes, len(jobs)))
    else:
        yield from map(run, jobs)


def _in_processes(
    run: Callable[[Job], Result], jobs: Sequence[Job], *, processes: int
) -> Generator[Result, None, None]:
    # Takes longer to import than a command of one process has to spare.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, initializer=_begin_worker)
    is_complete = False
    try:
        with _signals_held_back():
            futures = [pool.submit(run, job) for job in jobs]
        for future in futures:
            yield future.result()
        is_complete = True
    except BrokenProcessPool:
        raise TokenweirError(
            "a worker process was killed before its run had ended; is the machine short of memory?"
        ) from None
    finally:
        if not is_complete:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Deliver what asks this process to end afterwards.

    Workers that are being started would take it for theirs, and what a handler raises while a
    process forks is lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing
    from multiprocessing import connection

    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
