"""Reads hosts on the workers of a Dask cluster.

The paths or addresses of the files have to lead to the same files where the workers are. A file whose worker dies is read by
another; `WorkerError` says what a cluster lacks, within ten seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from traceview.base.errors import TraceNotFoundError, UsageError, WorkerError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.base.version import VERSION
from traceview.trace.reading.part import HostFile, read_host
from traceview.trace.sidecar.sidecar import sidecar_of

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE_SECONDS: Final = 5.0
"""A scheduler that is there answers sooner, and a nanny has restarted a worker by then."""
_LOOK_SECONDS: Final = 1.0
_CLOSING_SECONDS: Final = 1.0

_Answer = TypeVar("_Answer")


class Cluster:
    """The workers of the cluster whose scheduler is at `address`.

    Raises `UsageError` if Dask is not installed.
    """

    def __init__(self, address: str) -> None:
        if find_spec("distributed") is None:
            raise UsageError("--workers needs Dask", hint="pip install 'traceview[cluster]'")
        self._address = address

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        """Read files, salvaging or not, and give each with its number among them, in any order. Raises `WorkerError`."""
        with _connected(self._address) as connection:
            _check_versions(connection)
            yield from _Reading(connection, paths, salvage).files()


class _Reading:
    """The reading of files by the workers of a cluster."""

    def __init__(self, connection: _Connection, paths: Sequence[Location], salvage: bool) -> None:
        self._connection = connection
        self._paths = paths
        self._salvage = salvage
        self._looked_at = monotonic()
        self._lacking_since: float | None = None

    def files(self) -> Iterator[tuple[int, HostFile]]:
        futures = {self._submitted(path): number for number, path in enumerate(self._paths)}
        for future, number in self._done(futures):
            file = self._result(future, self._paths[number])
            if file is None or isinstance(file.error, TraceNotFoundError):
                raise WorkerError(
                    f"{self._paths[number]}: a worker of the cluster does not have it, as it is here",
                    hint="the path has to lead to the same file on every machine of the cluster",
                )
            future.release()
            yield number, file

    def _submitted(self, path: Location) -> Future:
        """The reading of a file, by any worker."""
        place = path.absolute() if isinstance(path, Path) else path
        sizes = sizes_of(place)

        async def submitted(client: Client) -> Future:
            return client.submit(read_same, place, sizes, salvage=self._salvage, pure=False)

        return self._connection.asked(submitted)

    def _result(self, future: Future, path: Location) -> HostFile | None:
        from distributed import KilledWorker

        try:
            # An error is here already, and may be of any kind.
            is_here = future.status == "error"
            got = self._connection.begun(lambda _: future.result())
            file: HostFile | None = got.result() if is_here else self._ended(got)
        except KilledWorker as error:
            raise WorkerError(
                f"{path}: workers that read it died again and again, the last at {error.last_worker.address}",
                hint="the memory of a worker may not suffice",
            ) from None
        return file

    def _ended(self, answer: concurrent.futures.Future[_Answer]) -> _Answer:
        while not answer.done():
            with suppress(concurrent.futures.TimeoutError):
                answer.exception(_LOOK_SECONDS)
            if not answer.done():
                self._look()
        return self._connection.ended(answer, 0)

    def _look(self) -> None:
        """Raise `WorkerError` if the scheduler is gone, or all workers are."""
        if monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        workers = self._connection.asked(lambda client: client.nthreads())
        self._looked_at = monotonic()
        if workers:
            self._lacking_since = None
            return
        self._lacking_since = self._lacking_since or self._looked_at
        if self._looked_at - self._lacking_since > PATIENCE_SECONDS:
            raise WorkerError(
                "the cluster has no workers any more",
                hint="the memory of a worker may not suffice for its files",
            )

    def _done(self, futures: dict[Future, int]) -> Iterator[tuple[Future, int]]:
        """The futures as they end, with their numbers."""
        done = self._as_done(futures)
        for count in range(len(futures)):
            with stage("reading files", f"{count + 1} of {len(futures)}"):
                future = next(done)
            yield future, futures[future]

    def _as_done(self, futures: Iterable[Future]) -> Iterator[Future]:
        """The futures as they end. Raises `WorkerError` if what they need is gone."""
        from distributed import CancelledError

        pending = set(futures)
        while pending:
            try:
                ended = self._connection.begun(partial(_ended_of, pending)).result()
            except (CancelledError, OSError):
                raise self._connection.lost() from None
            pending -= ended
            yield from ended
            self._look()


class _Connection:
    """A client of the scheduler at `address`, in an event loop on a thread of its own.

    A client that Dask gives its own loop stays, with that loop, if its scheduler does not answer, and closes whenever
    Python collects it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Client | None = None
        self._has_begun = Event()
        Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._has_begun.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_closed = asyncio.Event()
        self._has_begun.set()
        await self._has_closed.wait()

    def open(self) -> None:
        """Raises `WorkerError` if no scheduler answers."""
        try:
            # A scheduler that has stopped still takes connections.
            opened = asyncio.run_coroutine_threadsafe(self._opened(), self._loop)
            opened.result(PATIENCE_SECONDS + _LOOK_SECONDS)
        except concurrent.futures.TimeoutError:
            raise WorkerError(f"--workers {self._address}: the scheduler does not answer") from None
        except (OSError, ValueError, TypeError) as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            raise WorkerError(
                f"--workers {self._address}: no scheduler answers there{reason and ': '}{reason}",
                hint="`dask scheduler` prints its address when it starts",
            ) from None

    async def _opened(self) -> None:
        from distributed import Client

        self._client = Client(self._address, timeout=PATIENCE_SECONDS, asynchronous=True)
        await self._client

    def close(self) -> None:
        """Close the client, if its scheduler lets it, and end the thread."""
        with suppress(Exception):
            self.asked(lambda client: client.close(), _CLOSING_SECONDS)
        self._loop.call_soon_threadsafe(self._has_closed.set)

    def begun(
        self, action: Callable[[Client], Awaitable[_Answer]]
    ) -> concurrent.futures.Future[_Answer]:
        """What an action of the client will give."""

        async def answer() -> _Answer:
            assert self._client
            return await action(self._client)

        return asyncio.run_coroutine_threadsafe(answer(), self._loop)

    def ended(self, answer: concurrent.futures.Future[_Answer], seconds: float) -> _Answer:
        """What an action gives; raises `WorkerError` if it has not ended by then, or has lost the scheduler."""
        from distributed import CancelledError

        try:
            return answer.result(seconds)
        except concurrent.futures.TimeoutError:
            raise WorkerError(f"--workers {self._address}: the scheduler does not answer") from None
        except (CancelledError, OSError):
            raise self.lost() from None

    def asked(
        self, action: Callable[[Client], Awaitable[_Answer]], seconds: float | None = None
    ) -> _Answer:
        """What an action gives within so many seconds, `PATIENCE_SECONDS` if none are given. Raises `WorkerError`."""
        return self.ended(self.begun(action), PATIENCE_SECONDS if seconds is None else seconds)

    def lost(self) -> WorkerError:
        """The scheduler was there, and is not any more."""
        return WorkerError(f"--workers {self._address}: the scheduler has gone away")


@contextmanager
def _connected(address: str) -> Iterator[_Connection]:
    """A connection to the scheduler at `address`; what Dask logs and warns of is not shown."""
    from distributed.versions import VersionMismatchWarning

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    connection = _Connection(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            connection.open()
        yield connection
    finally:
        connection.close()
        logging.disable(disabled)


def version_here() -> str:
    """The version of traceview that the process runs; called on the machines of a cluster."""
    return VERSION


def _check_versions(connection: _Connection) -> None:
    """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
    try:
        found: dict[str, object] = connection.asked(
            lambda client: client.run(version_here, on_error="return")
        )
    except WorkerError:
        connection.asked(lambda client: client.nthreads(), _CLOSING_SECONDS)
        raise WorkerError(
            "a worker of the cluster does not answer", hint="the page of the scheduler shows which"
        ) from None
    if not found:
        raise WorkerError(
            "the cluster has no workers", hint="`dask worker ADDRESS` starts one, on any machine"
        )
    places = [(f"the worker {address}", version) for address, version in sorted(found.items())]
    try:
        places.append(
            (
                "the scheduler",
                connection.asked(lambda client: client.run_on_scheduler(version_here)),
            )
        )
    except ImportError as error:
        places.append(("the scheduler", error))
    for place, version in places:
        if version != VERSION:
            other = version if isinstance(version, str) else "not installed, or another version"
            raise WorkerError(
                f"{place}: its traceview is {other}; here it is {VERSION}",
                hint="install the same version on all machines of the cluster",
            )


async def _ended_of(futures: set[Future], _client: Client) -> set[Future]:
    """The futures that have ended, within `_LOOK_SECONDS` if none has yet."""
    from distributed import TimeoutError as LateError
    from distributed import wait

    with suppress(LateError):
        ended: set[Future] = (
            await wait(futures, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
        ).done
        return ended
    return set()


def sizes_of(path: Location) -> tuple[int, int] | None:
    """The bytes of a trace and of its sidecar on this machine, -1 for none; None for an address, which is the same everywhere."""
    if not isinstance(path, Path):
        return None
    trace, sidecar = (_bytes_of(file) for file in (path, sidecar_of(path)))
    return trace, sidecar


def _bytes_of(path: Location) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def read_same(path: Location, sizes: tuple[int, int] | None, *, salvage: bool) -> HostFile | None:
    """Read a file, on the machine of a worker; None if its files are others than where they were chosen."""
    return read_host(path, salvage=salvage) if sizes_of(path) == sizes else None
