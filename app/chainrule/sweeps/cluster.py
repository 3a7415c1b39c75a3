"""A Dask cluster as the executor of a sweep (extra `dask`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

from chainrule.errors import MissingExtraError, SweepError
from chainrule.sweeps.conduct import Checked

CONNECT_SECONDS = 5
"""How long the scheduler may take to answer at first."""


def cluster(address: str) -> tuple[Callable[[], Executor], int]:
    """A function that makes the executor of a scheduler's workers, and the number of their threads.

    TLS follows Dask's own settings (`distributed.comm.tls`).

    Raises:
        MissingExtraError: Dask is not installed.
        SweepError: the scheduler does not answer, or it has no worker.
    """
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("a scheduler needs Dask: pip install 'chainrule[dask]'", limit="dask") from None
    for name in ("distributed", "distributed.client"):
        # The sweep reports a lost connection itself, in one line.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    connect: Callable[..., Any] = Client
    try:
        client = connect(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise SweepError(
            f"scheduler: {address} does not answer ({type(error).__name__}); give the address that `dask scheduler` "
            "prints, such as tcp://127.0.0.1:8786",
            field="scheduler",
        ) from None
    threads = sum(client.nthreads().values())
    if not threads:
        client.close()
        raise SweepError(
            f"scheduler: {address} has no worker; start one with `dask worker {address}`", field="scheduler"
        )
    executor = Cluster(client)
    return (lambda: executor), threads


class Cluster(Checked):
    """A client of a scheduler as an executor; its end closes the connection."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # Not pure: a task that is run again must not get the same failure from the scheduler's memory.
        self._executor = client.get_executor(pure=False)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`."""
        return cast(Future[Any], self._executor.submit(fn, *args, **kwargs))

    def check(self) -> None:
        """See `Checked`."""
        if not self._client.nthreads():
            raise SweepError("the scheduler has no worker any more", field="scheduler")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """See `Executor.shutdown`; the tasks end with the connection."""
        self._executor.shutdown(wait=False)
        self._client.close()
