"""Reads hosts on the workers of a Dask cluster, which keep what they read for questions about it.

The paths or addresses of the files have to be readable where the workers are. A file whose worker dies is read again
by another one, as Dask does; `WorkerError` says what a cluster lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from traceview.base.errors import UsageError, WorkerError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.base.version import VERSION
from traceview.trace.load import Answering
from traceview.trace.part import HostFile, read_host

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE_SECONDS: Final = 5.0
"""A scheduler that is there answers sooner, and a nanny has restarted a worker by then."""
_LOOK_SECONDS: Final = 1.0


class Cluster:
    """The workers of the cluster whose scheduler is at `address`. They forget what they read after the `with` block.

    `keeps`: whether they keep what they read, for `ask`. Raises `UsageError` if Dask is not installed.
    """

    def __init__(self, address: str, *, keeps: bool = False) -> None:
        if find_spec("distributed") is None:
            raise UsageError("--workers needs Dask", hint="pip install 'traceview[cluster]'")
        self._address = address
        self._keeps = keeps
        self._client: Client | None = None
        self._open = ExitStack()
        self._kept: dict[int, Future] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.clear()
        self._open.close()

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        """Read files, salvaging or not, and give each with its number among them, in any order. Raises `WorkerError`."""
        client = self._client = self._open.enter_context(_connected(self._address))
        _check_versions(client)
        futures = {
            client.submit(read_host, _absolute(path), salvage=salvage, pure=False): number
            for number, path in enumerate(paths)
        }
        for future, number in self._done(client, "reading files", futures):
            file = _result(future, paths[number])
            if self._keeps:
                self._kept[number] = future
            else:
                future.release()
            yield number, file

    def ask(
        self, answering: Answering, questions: Mapping[int, object]
    ) -> Iterator[tuple[int, object]]:
        """Ask the workers about files that they read, by number; gives the answers in any order, those that there are.

        A file whose worker died is read again. Raises `WorkerError` if the scheduler or all workers are gone.
        """
        if self._client is None:
            return
        client = self._client
        futures = {
            client.submit(answering, kept, questions[number], pure=False): number
            for number, kept in self._kept.items()
            if number in questions
        }
        self._kept.clear()
        for future, number in self._done(client, "asking workers", futures):
            if future.status == "finished":
                yield number, future.result()

    def _done(
        self, client: Client, name: str, futures: dict[Future, int]
    ) -> Iterator[tuple[Future, int]]:
        """The futures as they end, with their numbers."""
        done = _as_done(client, futures, self._address)
        for count in range(len(futures)):
            with stage(name, f"{count + 1} of {len(futures) + count}"):
                future = next(done)
            yield future, futures.pop(future)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at `address`; what Dask logs about it is not shown."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _client(address) as client:
            yield client
    finally:
        logging.disable(disabled)


def _client(address: str) -> Client:
    from distributed import Client

    try:
        return Client(address, timeout=PATIENCE_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise WorkerError(
            f"--workers {address}: no scheduler answers there{reason and ': '}{reason}",
            hint="`dask scheduler` prints its address when it starts",
        ) from None


def version_here() -> str:
    """The version of traceview that the process runs; called on the machines of a cluster."""
    return VERSION


def _check_versions(client: Client) -> None:
    """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
    found: dict[str, object] = client.run(version_here, on_error="return")
    if not found:
        raise WorkerError(
            "the cluster has no workers", hint="`dask worker ADDRESS` starts one, on any machine"
        )
    places = [(f"the worker {address}", version) for address, version in sorted(found.items())]
    try:
        places.append(("the scheduler", client.run_on_scheduler(version_here)))
    except ImportError as error:
        places.append(("the scheduler", error))
    for place, version in places:
        if version != VERSION:
            other = version if isinstance(version, str) else "not installed, or another version"
            raise WorkerError(
                f"{place}: its traceview is {other}; here it is {VERSION}",
                hint="install the same version on all machines of the cluster",
            )


def _as_done(client: Client, futures: Iterable[Future], address: str) -> Iterator[Future]:
    """The futures as they end. Raises `WorkerError` if the scheduler or all workers are gone."""
    from distributed import CancelledError, wait
    from distributed import TimeoutError as LateError

    pending = set(futures)
    lonely_since = None
    while pending:
        ended: set[Future] = set()
        try:
            with suppress(LateError):
                ended = wait(pending, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done
            has_workers = bool(ended or client.nthreads())
        except (CancelledError, OSError):
            raise WorkerError(f"--workers {address}: the scheduler has gone away") from None
        pending -= ended
        yield from ended
        lonely_since = None if has_workers else lonely_since or monotonic()
        if lonely_since and monotonic() - lonely_since > PATIENCE_SECONDS:
            raise WorkerError(
                "the cluster has no workers any more",
                hint="the memory of a worker may not suffice for its files",
            )


def _result(future: Future, path: Location) -> HostFile:
    from distributed import KilledWorker

    try:
        file: HostFile = future.result()
    except KilledWorker as error:
        raise WorkerError(
            f"{path}: workers that read it died again and again, the last at {error.last_worker.address}",
            hint="the memory of a worker may not suffice",
        ) from None
    return file


def _absolute(path: Location) -> Location:
    """The same place for a process in another folder."""
    return path.absolute() if isinstance(path, Path) else path
