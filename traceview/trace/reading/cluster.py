"""Reads hosts on the workers of a Dask cluster.

The paths or addresses of the files have to be readable where the workers are. A file whose worker dies, or does not have
it, is read by another one; `WorkerError` says what a cluster lacks, within ten seconds.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from traceview.base.errors import UsageError, WorkerError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.base.version import VERSION
from traceview.trace.reading.part import HostFile, read_host

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE_SECONDS: Final = 5.0
"""A scheduler that is there answers sooner, and a nanny has restarted a worker by then."""
SILENCE_SECONDS: Final = 7.0
"""A worker that lives reports to its scheduler every second; one of a thousand every five seconds."""
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
        self._client: Client | None = None

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        """Read files, salvaging or not, and give each with its number among them, in any order. Raises `WorkerError`."""
        with _connected(self._address) as client:
            self._client = client
            _check_versions(client, self._address)
            yield from self._read(client, paths, salvage)

    def _read(
        self, client: Client, paths: Sequence[Location], salvage: bool
    ) -> Iterator[tuple[int, HostFile]]:
        futures = {self._submitted(path, salvage): number for number, path in enumerate(paths)}
        tried: dict[int, set[str]] = {number: set() for number in range(len(paths))}
        while futures:
            again: dict[Future, int] = {}
            for future, number in self._done(client, futures):
                file = self._result(future, paths[number])
                if file.failure and file.failure.is_missing:
                    tried[number] |= self._watched(partial(_holders, client, future))
                    others = self._others(paths[number], tried[number])
                    again[self._submitted(paths[number], salvage, others)] = number
                    continue
                future.release()
                yield number, file
            futures = again

    def _submitted(self, path: Location, salvage: bool, workers: Sequence[str] = ()) -> Future:
        """The reading of a file, by any worker or by one of these."""
        assert self._client
        chosen = {"workers": list(workers), "allow_other_workers": False} if workers else {}
        return self._client.submit(
            read_host, _absolute(path), salvage=salvage, pure=False, **chosen
        )

    def _others(self, path: Location, tried: set[str]) -> list[str]:
        """The workers that have not looked for a file that those which did have not got."""
        assert self._client
        others = sorted(set(self._watched(self._client.nthreads)) - tried)
        if not others:
            raise WorkerError(
                f"{path}: no worker of the cluster has it",
                hint="the path has to lead to the file on every machine of the cluster",
            )
        return others

    def _result(self, future: Future, path: Location) -> HostFile:
        from distributed import KilledWorker

        try:
            # An error is here already, and may be of any kind.
            is_here = future.status == "error"
            file: HostFile = future.result() if is_here else self._watched(future.result)
        except KilledWorker as error:
            raise WorkerError(
                f"{path}: workers that read it died again and again, the last at {error.last_worker.address}",
                hint="the memory of a worker may not suffice",
            ) from None
        return file

    def _watched(self, action: Callable[[], _Answer]) -> _Answer:
        """What an action gives that may take long. Raises `WorkerError` if the cluster stops answering meanwhile."""
        assert self._client
        answer = _begun(action)
        while not answer.done():
            with suppress(concurrent.futures.TimeoutError):
                answer.exception(_LOOK_SECONDS)
            if not answer.done():
                _check_answers(self._client, self._address)
        return _ended(answer, 0, self._address)

    def _done(self, client: Client, futures: dict[Future, int]) -> Iterator[tuple[Future, int]]:
        """The futures as they end, with their numbers."""
        done = _as_done(client, futures, self._address)
        for count in range(len(futures)):
            with stage("reading files", f"{count + 1} of {len(futures) + count}"):
                future = next(done)
            yield future, futures.pop(future)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at `address`; what Dask logs about it is not shown."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    client = None
    try:
        client = _client(address)
        yield client
    finally:
        if client is not None:
            # A scheduler that has stopped would be waited for.
            with suppress(Exception):
                _ended(_begun(client.close), _CLOSING_SECONDS, address)
        logging.disable(disabled)


def _begun(action: Callable[[], _Answer]) -> concurrent.futures.Future[_Answer]:
    """An action on a thread of its own, which ends with the process whatever it waits for."""
    answer: concurrent.futures.Future[_Answer] = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(action())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer


def _ended(answer: concurrent.futures.Future[_Answer], seconds: float, address: str) -> _Answer:
    """What an action gives; raises `WorkerError` if it has not ended by then, or has lost the scheduler."""
    from distributed import CancelledError

    try:
        return answer.result(seconds)
    except concurrent.futures.TimeoutError:
        raise WorkerError(f"--workers {address}: the scheduler does not answer") from None
    except (CancelledError, OSError):
        raise WorkerError(f"--workers {address}: the scheduler has gone away") from None


def _holders(client: Client, future: Future) -> set[str]:
    """The workers that have the result of a future."""
    return {address for held in client.who_has([future]).values() for address in held}


def silent_workers(dask_scheduler: Any) -> dict[str, float]:
    """The seconds since each worker reported that works or keeps results; called on the machine of the scheduler."""
    now = time()
    return {
        address: now - worker.last_seen
        for address, worker in dask_scheduler.workers.items()
        if worker.processing or worker.has_what
    }


def _check_answers(client: Client, address: str) -> bool:
    """Whether there are workers. Raises `WorkerError` if the scheduler, or a worker that is needed, does not answer."""
    silent = _ended(
        _begun(lambda: client.run_on_scheduler(silent_workers)), PATIENCE_SECONDS, address
    )
    for worker, seconds in sorted(silent.items()):
        if seconds > SILENCE_SECONDS:
            raise WorkerError(
                f"the worker {worker} has not answered for {seconds:.0f} s",
                hint="it has stopped, or its machine cannot be reached any more",
            )
    return bool(_ended(_begun(client.nthreads), PATIENCE_SECONDS, address))


def _client(address: str) -> Client:
    from distributed import Client

    try:
        # A scheduler that has stopped still takes connections.
        opened = _begun(lambda: Client(address, timeout=PATIENCE_SECONDS))
        return opened.result(PATIENCE_SECONDS + _LOOK_SECONDS)
    except concurrent.futures.TimeoutError:
        raise WorkerError(f"--workers {address}: the scheduler does not answer") from None
    except (OSError, ValueError, TypeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise WorkerError(
            f"--workers {address}: no scheduler answers there{reason and ': '}{reason}",
            hint="`dask scheduler` prints its address when it starts",
        ) from None


def version_here() -> str:
    """The version of traceview that the process runs; called on the machines of a cluster."""
    return VERSION


def _check_versions(client: Client, address: str) -> None:
    """Raise `WorkerError` if there is no worker, or any part of the cluster runs another traceview than this process."""
    asked = _begun(lambda: client.run(version_here, on_error="return"))
    try:
        found: dict[str, object] = _ended(asked, PATIENCE_SECONDS, address)
    except WorkerError:
        _ended(_begun(client.nthreads), _CLOSING_SECONDS, address)
        raise WorkerError(
            "a worker of the cluster does not answer", hint="the page of the scheduler shows which"
        ) from None
    if not found:
        raise WorkerError(
            "the cluster has no workers", hint="`dask worker ADDRESS` starts one, on any machine"
        )
    places = [(f"the worker {address}", version) for address, version in sorted(found.items())]
    try:
        of_scheduler = _begun(lambda: client.run_on_scheduler(version_here))
        places.append(("the scheduler", _ended(of_scheduler, PATIENCE_SECONDS, address)))
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
    """The futures as they end. Raises `WorkerError` if the scheduler, a worker that is needed or all workers are gone."""
    from distributed import CancelledError, wait
    from distributed import TimeoutError as LateError

    pending = set(futures)
    lonely_since = None
    looked_at = monotonic()
    while pending:
        ended: set[Future] = set()
        try:
            with suppress(LateError):
                ended = wait(pending, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done
        except (CancelledError, OSError):
            raise WorkerError(f"--workers {address}: the scheduler has gone away") from None
        pending -= ended
        yield from ended
        # Also while others go on: what a stopped worker has in work would be waited for at the end.
        if monotonic() - looked_at >= _LOOK_SECONDS:
            has_workers = _check_answers(client, address)
            looked_at = monotonic()
            lonely_since = None if has_workers else lonely_since or looked_at
        if lonely_since and monotonic() - lonely_since > PATIENCE_SECONDS:
            raise WorkerError(
                "the cluster has no workers any more",
                hint="the memory of a worker may not suffice for its files",
            )


def _absolute(path: Location) -> Location:
    """The same place for a process in another folder."""
    return path.absolute() if isinstance(path, Path) else path
