"""Which processes of this machine do runs go to, and who ends them? A backend of joblib.

Workers ignore Ctrl-C, which a terminal sends to all of them: the parent decides. It kills them when
it leaves early. Where it is killed itself, each worker sees it go and ends; those of joblib's own
backend ``loky`` go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

from joblib.parallel import ParallelBackendBase

__all__ = ["OwnedProcesses"]

_ENDINGS = (signal.SIGINT, signal.SIGTERM)


class OwnedProcesses(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """A pool of worker processes that end with their parent, whatever ends it."""

    supports_retrieve_callback = True

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return as many as are asked for."""
        return n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        """Start the workers."""
        self.parallel = parallel
        others = set(multiprocessing.active_children())
        with _signals_held_back():
            self._pool = ProcessPoolExecutor(n_jobs, initializer=_begin_worker)
            # The first job starts all workers; later ones come from a thread.
            self._pool.submit(os.getpid)
        self._workers = set(multiprocessing.active_children()) - others
        return n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None
    ) -> Future[Any]:
        """Hand out a job."""
        future = self._pool.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return what a job returned, or raise what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002 - joblib's
        """Kill the workers; a pool is not used twice."""
        for worker in self._workers:
            worker.kill()

    def terminate(self) -> None:
        """Wait until the workers have ended."""
        self._pool.shutdown(cancel_futures=True)


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
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
