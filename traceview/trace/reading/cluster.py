"""Reads hosts on the workers of a Dask cluster.

The paths or addresses of the files have to lead to the same files where the workers are. A file whose worker dies is read by
another; `WorkerError` says what a cluster lacks, within ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Iterator, Sequence
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
        from distributed.versions import VersionMismatchWarning

        # What Dask logs and warns of is not shown.
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VersionMismatchWarning)
                return iter(asyncio.run(_read(self._address, paths, salvage)))
        finally:
            logging.disable(disabled)


async def _read(
    address: str, paths: Sequence[Location], salvage: bool
) -> list[tuple[int, HostFile]]:
    """The files with their numbers, as they were read."""
    from distributed import Client

    client = None
    try:
        # A client that Dask gives its own loop stays, with that loop, if its scheduler does not answer.
        client = Client(address, timeout=PATIENCE_SECONDS, asynchronous=True)
        # A scheduler that has stopped still takes connections.
        await asyncio.wait_for(client, PATIENCE_SECONDS + _LOOK_SECONDS)
        reading = _Reading(address, client)
    except asyncio.TimeoutError:
        raise WorkerError(f"--workers {address}: the scheduler does not answer") from None
    except (OSError, ValueError, TypeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise WorkerError(
            f"--workers {address}: no scheduler answers there{reason and ': '}{reason}",
            hint="`dask scheduler` prints its address when it starts",
        ) from None
    else:
        await reading.check_versions()
        return await reading.files(paths, salvage)
    finally:
        if client is not None:
            with suppress(Exception):
                await asyncio.wait_for(client.close(), _CLOSING_SECONDS)


class _Reading:
    """The reading of files by the workers of a cluster, through a client of its scheduler."""

    def __init__(self, address: str, client: Client) -> None:
        self._address = address
        self._client = client
        self._lacking_since: float | None = None

    async def check_versions(self) -> None:
        """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
        try:
            found: dict[str, object] = await self._asked(
                self._client.run(version_here, on_error="return")
            )
        except WorkerError:
            await self._asked(self._client.nthreads(), _CLOSING_SECONDS)
            raise WorkerError(
                "a worker of the cluster does not answer",
                hint="the page of the scheduler shows which",
            ) from None
        if not found:
            raise WorkerError(
                "the cluster has no workers",
                hint="`dask worker ADDRESS` starts one, on any machine",
            )
        places = [(f"the worker {address}", version) for address, version in sorted(found.items())]
        try:
            of_scheduler = await self._asked(self._client.run_on_scheduler(version_here))
        except ImportError as error:
            of_scheduler = error
        for place, version in (*places, ("the scheduler", of_scheduler)):
            if version != VERSION:
                other = version if isinstance(version, str) else "not installed, or another version"
                raise WorkerError(
                    f"{place}: its traceview is {other}; here it is {VERSION}",
                    hint="install the same version on all machines of the cluster",
                )

    async def files(self, paths: Sequence[Location], salvage: bool) -> list[tuple[int, HostFile]]:
        """The files with their numbers, as workers have read them."""
        from distributed import wait

        number_of = {self._submitted(path, salvage): number for number, path in enumerate(paths)}
        pending, files = set(number_of), []
        ended: list[Future] = []
        for count in range(1, len(paths) + 1):
            with stage("reading files", f"{count} of {len(paths)}"):
                if not ended:
                    some = await self._ended(wait(pending, return_when="FIRST_COMPLETED"))
                    ended += some.done
                    pending -= some.done
                future = ended.pop()
                number = number_of[future]
                files.append((number, await self._file(future, paths[number])))
            future.release()
        return files

    def _submitted(self, path: Location, salvage: bool) -> Future:
        """The reading of a file, by any worker."""
        place = path.absolute() if isinstance(path, Path) else path
        return self._client.submit(read_same, place, sizes_of(place), salvage=salvage, pure=False)

    async def _file(self, future: Future, path: Location) -> HostFile:
        from distributed import KilledWorker

        try:
            # An error is here already, and may be of any kind.
            is_here = future.status == "error"
            file: HostFile | None = await (
                future.result() if is_here else self._ended(future.result())
            )
        except KilledWorker as error:
            raise WorkerError(
                f"{path}: workers that read it died again and again, the last at {error.last_worker.address}",
                hint="the memory of a worker may not suffice",
            ) from None
        if file is None or isinstance(file.error, TraceNotFoundError):
            raise WorkerError(
                f"{path}: a worker of the cluster does not have it, as it is here",
                hint="the path has to lead to the same file on every machine of the cluster",
            )
        return file

    async def _ended(self, awaited: Awaitable[_Answer]) -> _Answer:
        """What is given in the end; raises `WorkerError` if the scheduler goes meanwhile, or all workers do."""
        task = asyncio.ensure_future(awaited)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
                await self._look()
            return await self._asked(task)
        finally:
            # What nobody waits for any more would be reported as never retrieved.
            task.cancel()

    async def _look(self) -> None:
        """Raise `WorkerError` if the scheduler is gone, or all workers are."""
        if await self._asked(self._client.nthreads()):
            self._lacking_since = None
            return
        self._lacking_since = self._lacking_since or monotonic()
        if monotonic() - self._lacking_since > PATIENCE_SECONDS:
            raise WorkerError(
                "the cluster has no workers any more",
                hint="the memory of a worker may not suffice for its files",
            )

    async def _asked(self, awaited: Awaitable[_Answer], seconds: float | None = None) -> _Answer:
        """What is given within so many seconds, `PATIENCE_SECONDS` if none are given; else raises `WorkerError`."""
        from distributed import CancelledError

        try:
            return await asyncio.wait_for(awaited, PATIENCE_SECONDS if seconds is None else seconds)
        except asyncio.TimeoutError:
            raise WorkerError(f"--workers {self._address}: the scheduler does not answer") from None
        except (CancelledError, OSError):
            raise WorkerError(f"--workers {self._address}: the scheduler has gone away") from None


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
