"""How are independent runs spread over processes, or over machines?

joblib hands them out. Without a name its backend is ``OwnedProcesses``, whose workers end with
their parent, whatever ends it. With a name it is ``loky``, processes of this machine that are begun
afresh instead of forked, or ``dask``, whose workers stand wherever its cluster has them:
DASK_SCHEDULER_ADDRESS says where that is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from tokenweir.core.errors import ConfigError, TokenweirError

__all__ = ["BACKENDS", "check_backend", "map_jobs"]

Job = TypeVar("Job")
Result = TypeVar("Result")

BACKENDS = ("loky", "dask")
_OWN = "tokenweir"
_CLUSTER = "DASK_SCHEDULER_ADDRESS"


def check_backend(name: str | None) -> None:
    """Check that a backend is known, installed, and knows where its workers are.

    Raises:
        ConfigError: It is not.
    """
    if name is None:
        return
    if name not in BACKENDS:
        raise ConfigError(f"--backend {name!r} is not allowed, allowed: {', '.join(BACKENDS)}")
    if name == "dask":
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ConfigError(
                "--backend dask needs the package distributed, allowed: pip install distributed"
            ) from None
        if not os.environ.get(_CLUSTER):
            raise ConfigError(
                f"--backend dask does not know its cluster, allowed: {_CLUSTER}=tcp://HOST:8786"
            )


def map_jobs(
    run: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    processes: int,
    backend: str | None = None,
) -> Generator[Result, None, None]:
    """Yield each job's result in order, several at a time where that is asked for.

    Whoever may leave before the last result closes the generator, which ends the workers.

    Args:
        run: A function of a module, since it may travel.
        jobs: What it is called with.
        processes: Jobs at once; on a cluster as many as it has workers.
        backend: Row of ``BACKENDS``, or None for processes of this machine.

    Raises:
        TokenweirError: A worker was killed, as by a machine short of memory.
    """
    if len(jobs) > 1 and (processes > 1 or backend is not None):
        yield from _by_joblib(run, jobs, processes=processes, backend=backend)
    else:
        yield from map(run, jobs)


def _by_joblib(
    run: Callable[[Job], Result], jobs: Sequence[Job], *, processes: int, backend: str | None
) -> Generator[Result, None, None]:
    # Takes longer to import than a command of one process has to spare.
    from concurrent.futures.process import BrokenProcessPool

    import joblib

    from tokenweir.study.owned_processes import OwnedProcesses

    joblib.register_parallel_backend(_OWN, OwnedProcesses)
    if backend == "dask":
        from distributed import Client

        # Becomes the one that joblib asks for; its address comes from the environment.
        Client(set_as_default=True)
    count = -1 if backend == "dask" else min(processes, len(jobs))
    try:
        with joblib.parallel_config(backend=backend or _OWN, n_jobs=count):
            parallel = joblib.Parallel(batch_size=1, return_as="generator")
            results = parallel(joblib.delayed(run)(job) for job in jobs)
        try:
            # Not "yield from", which would close it without what stands below.
            for result in results:  # noqa: UP028
                yield result
        finally:
            with warnings.catch_warnings():
                # That jobs are left undone is meant.
                warnings.simplefilter("ignore")
                results.close()
    except BrokenProcessPool:
        raise TokenweirError(
            "a worker process was killed before its run had ended; is the machine short of memory?"
        ) from None
