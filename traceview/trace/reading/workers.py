"""Reads hosts in several processes on this machine.

A process that dies loses the file that it was reading; another one reads it again, once. The processes are told what
to read through pipes, so they end with this process, even if that is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from msgspec import Struct

from traceview.base.errors import WorkerError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.trace.reading.load import read_here
from traceview.trace.reading.part import HostFile
from traceview.trace.reading.worker import Request, receive, send

MOST_TRIES: Final = 2
START: Final = "import sys; sys.path[:] = sys.argv[1:]; from traceview.trace.reading.worker import main; main()"


class Workers:
    """Up to `count` processes, or as many as there are files; with fewer than `fewest` there are none."""

    def __init__(self, count: int, *, fewest: int = 2) -> None:
        self._count = count
        self._fewest = fewest

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        """Read files, salvaging or not, and give each with its number among them, in any order.

        The processes have ended afterwards. Raises `WorkerError` if a file ends two processes, and what reading it raises
        here.
        """
        useful = min(self._count, len(paths))
        if useful < self._fewest:
            yield from read_here(paths, salvage)
            return
        requests = [Request(number, path, salvage) for number, path in enumerate(paths)]
        # The largest first, so that no process is left with a large one at the end.
        crew = _Crew(useful, sorted(requests, key=lambda request: -_size(request.path)))
        try:
            for done in range(len(paths)):
                with stage("reading files", f"{done + 1} of {len(paths)}"):
                    number, result = crew.done.get()
                if isinstance(result, BaseException):
                    raise result
                yield number, result
        finally:
            crew.end()


class _Job(Struct):
    """What a process is to read. `tries`: how many have begun it."""

    request: Request
    tries: int = 0


class _Crew:
    """Processes that read files, each led by a thread that waits for it. `done`: files by number, or the errors."""

    def __init__(self, count: int, requests: Sequence[Request]) -> None:
        self.done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._has_ended = False
        for request in requests:
            self._jobs.put(_Job(request))
        self._leaders = [Thread(target=self._lead, daemon=True) for _ in range(count)]
        for leader in self._leaders:
            leader.start()

    def end(self) -> None:
        """End all processes, whatever they are doing."""
        self._has_ended = True
        for _ in self._leaders:
            self._jobs.put(None)
        for process in self._processes:
            process.kill()
        for leader in self._leaders:
            leader.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe and pipe.close()

    def _lead(self) -> None:
        process = None
        while (job := self._jobs.get()) is not None and not self._has_ended:
            answer: object
            try:
                process = process or self._started()
                answer = _read_by(process, job.request)
            except (EOFError, OSError) as error:
                answer = self._after_death(process, job, error)
                process = None
            except Exception as error:
                answer = error
            if answer is not None:
                self.done.put((job.request.number, answer))

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the process that leads; it ends the others.
            start_new_session=True,
        )
        self._processes.append(process)
        if self._has_ended:
            process.kill()
        return process

    def _after_death(
        self, process: subprocess.Popen[bytes] | None, job: _Job, error: Exception
    ) -> WorkerError | None:
        """None if the file is to be read again; else the error."""
        job.tries += 1
        if process is None:
            return WorkerError(f"no process can be started: {error}", hint="use fewer --workers")
        if job.tries < MOST_TRIES:
            self._jobs.put(job)
            return None
        ending = _ending(process.wait())
        return WorkerError(
            f"{job.request.path}: {job.tries} processes that read it died, the last {ending}",
            hint="the memory may not suffice: use fewer --workers",
        )


def _read_by(process: subprocess.Popen[bytes], request: Request) -> Any:
    """What a process sends for a request: the file, or an error."""
    assert process.stdin
    assert process.stdout
    send(process.stdin, request)
    return receive(process.stdout)


def _path() -> list[str]:
    """Where a process looks for modules: where this one does, and where it has found this package."""
    folder = str(Path(__file__).parents[3])
    return sys.path if folder in sys.path else [folder, *sys.path]


def _size(path: Location) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ending(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
