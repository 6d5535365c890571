"""Reads hosts on the workers of a Dask cluster.

The paths or addresses of the files have to be readable where the workers are. A file whose worker dies is read by another;
`WorkerError` says what a cluster lacks, within ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
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
        from distributed.versions import VersionMismatchWarning

        # What Dask logs and warns of is not shown.
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VersionMismatchWarning)
                return iter(asyncio.run(self._read(paths, salvage)))
        finally:
            logging.disable(disabled)

    async def _read(self, paths: Sequence[Location], salvage: bool) -> list[tuple[int, HostFile]]:
        from distributed import CancelledError, Client

        client = Client(self._address, timeout=PATIENCE_SECONDS, asynchronous=True)
        try:
            # A scheduler that has stopped still takes connections.
            await _soon(client, PATIENCE_SECONDS + _LOOK_SECONDS)
            await _check_versions(client)
            return [file async for file in _files(client, paths, salvage)]
        except asyncio.TimeoutError:
            raise WorkerError(f"--workers {self._address}: a process does not answer") from None
        except (CancelledError, OSError, ValueError, TypeError) as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            raise WorkerError(
                f"--workers {self._address}: no scheduler answers there{reason and ': '}{reason}",
                hint="`dask scheduler` prints its address when it starts",
            ) from None
        finally:
            with suppress(Exception):
                await _soon(client.close(), _LOOK_SECONDS)


async def _soon(answer: Awaitable[_Answer], seconds: float) -> _Answer:
    """What is answered within so many seconds; raises `asyncio.TimeoutError` after that.

    `asyncio.wait_for` may swallow that it is interrupted (Python 3.11).
    """
    task = asyncio.ensure_future(answer)
    try:
        if (await asyncio.wait({task}, timeout=seconds))[0]:
            return task.result()
        raise asyncio.TimeoutError
    finally:
        task.cancel()


async def _check_versions(client: Client) -> None:
    """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
    if not await _soon(client.nthreads(), PATIENCE_SECONDS):
        raise WorkerError(
            "the cluster has no workers", hint="`dask worker ADDRESS` starts one, on any machine"
        )
    asked = client.run(version_here, on_error="return")
    found = await _soon(asked, PATIENCE_SECONDS)
    versions = {f"the worker {address}": version for address, version in sorted(found.items())}
    try:
        asked = client.run_on_scheduler(version_here)
        versions["the scheduler"] = await _soon(asked, PATIENCE_SECONDS)
    except ImportError as error:
        versions["the scheduler"] = error
    for place, version in versions.items():
        if version != VERSION:
            other = version if isinstance(version, str) else "not installed, or another version"
            raise WorkerError(
                f"{place}: its traceview is {other}; here it is {VERSION}",
                hint="install the same version on all machines of the cluster",
            )


async def _files(
    client: Client, paths: Sequence[Location], salvage: bool
) -> AsyncIterator[tuple[int, HostFile]]:
    """What workers read of each file, as they end."""
    from distributed import KilledWorker, wait

    number_of: dict[Future, int] = {}
    for number, path in enumerate(paths):
        whole = path.absolute() if isinstance(path, Path) else path
        sizes = sizes_of(whole)
        reading = client.submit(read_same, whole, sizes, salvage=salvage, pure=False)
        number_of[reading] = number
    for count in range(len(paths)):
        with stage("reading files", f"{count + 1} of {len(paths)}"):
            ended = await _watched(client, wait(list(number_of), return_when="FIRST_COMPLETED"))
            future = next(iter(ended.done))
            number = number_of.pop(future)
            try:
                file: HostFile | None = await _watched(client, future.result())
            except KilledWorker as error:
                raise WorkerError(
                    f"{paths[number]}: workers that read it died again and again, the last at "
                    f"{error.last_worker.address}",
                    hint="the memory of a worker may not suffice",
                ) from None
            future.release()
        if file is None or isinstance(file.error, TraceNotFoundError):
            raise WorkerError(
                f"{paths[number]}: a worker of the cluster does not have it, as it is here",
                hint="the path has to lead to the same file on every machine of the cluster",
            )
        yield number, file


async def _watched(client: Client, answer: Awaitable[_Answer]) -> _Answer:
    """What is awaited, however long it takes. Raises `WorkerError` once there have been no workers for a while."""
    task = asyncio.ensure_future(answer)
    had_workers = monotonic()
    try:
        while monotonic() - had_workers < PATIENCE_SECONDS:
            if (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
                return task.result()
            if await _soon(client.nthreads(), PATIENCE_SECONDS):
                had_workers = monotonic()
    finally:
        task.cancel()
    raise WorkerError(
        "the cluster has no workers any more",
        hint="the memory of a worker may not suffice for its files",
    )


def version_here() -> str:
    """The version of traceview that the process runs; called on the machines of a cluster."""
    return VERSION


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
