"""Reads hosts in several processes on this machine.

A process that dies loses the file that it read; another one reads it again, once. The processes are told about their
files through pipes, so they end with this process, even if that is killed.
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

from traceview.errors import WorkerError
from traceview.location import Location
from traceview.stages import stage
from traceview.trace.load import ReadHosts, read_here
from traceview.trace.messages import receive, send
from traceview.trace.part import HostFile

MOST_TRIES: Final = 2
START: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from traceview.trace.worker import main; main()"
)


class _Job(Struct):
    """A file to read. `tries`: how many processes have begun to read it."""

    number: int
    path: Location
    tries: int = 0


def reading_by_workers(count: int) -> ReadHosts:
    """What reads files in `count` processes, or in as many as there are files; one file is read in this process."""

    def read(paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        useful = min(count, len(paths))
        return read_here(paths, salvage) if useful < 2 else read_by(useful, paths, salvage)

    return read


def read_by(count: int, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
    """Read files in `count` processes, which have ended when this has.

    Raises `WorkerError` if a file ends two processes, and what reading it raises here.
    """
    crew = _Crew(paths, salvage, count)
    try:
        for done in range(len(paths)):
            with stage("reading files", f"{done + 1} of {len(paths)}"):
                number, result = crew.next()
            if isinstance(result, BaseException):
                raise result
            yield number, result
    finally:
        crew.end()


class _Crew:
    """Processes that read files, each led by a thread that waits for it."""

    def __init__(self, paths: Sequence[Location], salvage: bool, count: int) -> None:
        self._salvage = salvage
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._has_ended = False
        # The largest first, so that no process is left with a large one at the end.
        numbers = sorted(range(len(paths)), key=lambda number: -_size(paths[number]))
        for number in numbers:
            self._jobs.put(_Job(number, paths[number]))
        self._leaders = [Thread(target=self._lead, daemon=True) for _ in range(count)]
        for leader in self._leaders:
            leader.start()

    def next(self) -> tuple[int, Any]:
        """The number of a file that has been read, and what was read or the error."""
        return self._done.get()

    def end(self) -> None:
        """End all processes, whatever they are doing."""
        self._has_ended = True
        for process in self._processes:
            process.kill()
        for _ in self._leaders:
            self._jobs.put(None)
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
            try:
                if process is None:
                    process = self._started()
                answer = self._ask(process, job)
            except (EOFError, OSError) as error:
                answer = self._after_death(process, job, error)
                process = None
            except Exception as error:
                answer = error
            if answer is not None:
                self._done.put((job.number, answer))

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

    def _ask(self, process: subprocess.Popen[bytes], job: _Job) -> Any:
        assert process.stdin
        assert process.stdout
        send(process.stdin, (job.path, self._salvage))
        return receive(process.stdout)

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
            f"{job.path}: {job.tries} processes that read it died, the last {ending}",
            hint="the memory may not suffice: use fewer --workers",
        )


def _path() -> list[str]:
    """Where a process looks for modules: where this one does, and where it has found this package."""
    folder = str(Path(__file__).parents[2])
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
