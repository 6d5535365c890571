"""Reads hosts on the workers of a Dask cluster.

The paths or addresses of the files have to be readable where the workers are. A file whose worker dies is read by another;
`WorkerError` says what a cluster lacks, within ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from traceview.base.errors import UsageError, WorkerError
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
        with _quiet():
            return iter(asyncio.run(self._read(paths, salvage)))

    async def _read(self, paths: Sequence[Location], salvage: bool) -> list[tuple[int, HostFile]]:
        async with _connected(self._address) as client:
            await _check_versions(client)
            reading = _Reading(client)
            number_of = {reading.begun(path, salvage): place for place, path in enumerate(paths)}
            files = []
            for count in range(len(paths)):
                with stage("reading files", f"{count + 1} of {len(paths)}"):
                    future = await reading.next_of(number_of)
                    number = number_of.pop(future)
                    files.append((number, await reading.file(future, paths[number])))
            return files


class _Reading:
    """The reading of files by the workers of a cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lacking_since: float | None = None

    def begun(self, path: Location, salvage: bool) -> Future:
        """The reading of a file, by any worker."""
        whole = path.absolute() if isinstance(path, Path) else path
        return self._client.submit(read_same, whole, sizes_of(whole), salvage=salvage, pure=False)

    async def next_of(self, futures: Iterable[Future]) -> Future:
        """The next of some futures that has ended."""
        from distributed import wait

        ended = await self._watched(wait(list(futures), return_when="FIRST_COMPLETED"))
        return next(iter(ended.done))

    async def file(self, future: Future, path: Location) -> HostFile:
        """What was read of a file."""
        from distributed import KilledWorker

        try:
            file: HostFile | None = await self._watched(future.result())
        except KilledWorker as error:
            raise WorkerError(
                f"{path}: workers that read it died again and again, the last at {error.last_worker.address}",
                hint="the memory of a worker may not suffice",
            ) from None
        if file is None or (file.failure and file.failure.is_missing):
            raise WorkerError(
                f"{path}: a worker of the cluster does not have it, as it is here",
                hint="the path has to lead to the same file on every machine of the cluster",
            )
        future.release()
        return file

    async def _watched(self, answer: Awaitable[_Answer]) -> _Answer:
        """What is awaited, however long it takes. Raises `WorkerError` once the cluster has had no workers for a while."""
        task = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
                await self._look()
            return task.result()
        finally:
            task.cancel()

    async def _look(self) -> None:
        if await _soon(self._client.nthreads()):
            self._lacking_since = None
            return
        self._lacking_since = self._lacking_since or monotonic()
        if monotonic() - self._lacking_since > PATIENCE_SECONDS:
            raise WorkerError(
                "the cluster has no workers any more",
                hint="the memory of a worker may not suffice for its files",
            )


async def _soon(answer: Awaitable[_Answer]) -> _Answer:
    """What the scheduler or a worker answers; raises `TimeoutError` if it takes too long.

    `asyncio.wait_for` may swallow that it is interrupted (Python 3.11).
    """
    task = asyncio.ensure_future(answer)
    try:
        if (await asyncio.wait({task}, timeout=PATIENCE_SECONDS + _LOOK_SECONDS))[0]:
            return task.result()
        raise asyncio.TimeoutError
    finally:
        task.cancel()


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Client]:
    """A client of the scheduler at `address`. Raises `WorkerError` if it does not answer, or goes away meanwhile."""
    from distributed import CancelledError, Client

    client = Client(address, timeout=PATIENCE_SECONDS, asynchronous=True)
    try:
        # A scheduler that has stopped still takes connections.
        await _soon(_opened(client, address))
        yield client
    except asyncio.TimeoutError:
        raise WorkerError(f"--workers {address}: the scheduler does not answer") from None
    except (CancelledError, OSError):
        raise WorkerError(f"--workers {address}: the scheduler has gone away") from None
    finally:
        with suppress(Exception):
            await asyncio.wait({asyncio.ensure_future(client.close())}, timeout=_LOOK_SECONDS)


async def _opened(client: Client, address: str) -> None:
    try:
        await client
    except (OSError, ValueError, TypeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise WorkerError(
            f"--workers {address}: no scheduler answers there{reason and ': '}{reason}",
            hint="`dask scheduler` prints its address when it starts",
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs and warns of is not shown."""
    from distributed.versions import VersionMismatchWarning

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            yield
    finally:
        logging.disable(disabled)


def version_here() -> str:
    """The version of traceview that the process runs; called on the machines of a cluster."""
    return VERSION


async def _check_versions(client: Client) -> None:
    """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
    workers = await _soon(client.nthreads())
    if not workers:
        raise WorkerError(
            "the cluster has no workers", hint="`dask worker ADDRESS` starts one, on any machine"
        )
    try:
        found = await _soon(client.run(version_here, on_error="return"))
    except asyncio.TimeoutError:
        raise WorkerError(
            "a worker of the cluster does not answer", hint="the page of the scheduler shows which"
        ) from None
    versions = {f"the worker {address}": version for address, version in sorted(found.items())}
    try:
        versions["the scheduler"] = await _soon(client.run_on_scheduler(version_here))
    except ImportError as error:
        versions["the scheduler"] = error
    for place, version in versions.items():
        if version != VERSION:
            other = version if isinstance(version, str) else "not installed, or another version"
            raise WorkerError(
                f"{place}: its traceview is {other}; here it is {VERSION}",
                hint="install the same version on all machines of the cluster",
            )


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
