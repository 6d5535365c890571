"""Reads hosts in several processes on this machine, which keep what they read for questions about it.

A process that dies loses what it was doing and what it kept; another one does it again, once. The processes are told
what to do through pipes, so they end with this process, even if that is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any, Final

from msgspec import Struct

from traceview.base.errors import WorkerError
from traceview.base.location import Location
from traceview.base.timing import stage
from traceview.trace.reading.load import Answering, read_here
from traceview.trace.reading.part import HostFile
from traceview.trace.reading.worker import Request, receive, send

MOST_TRIES: Final = 2
START: Final = "import sys; sys.path[:] = sys.argv[1:]; from traceview.trace.reading.worker import main; main()"


class Workers:
    """Up to `count` processes, or as many as there are files; with fewer than `fewest` there are none.

    The processes have ended after the `with` block.
    """

    def __init__(self, count: int, *, fewest: int = 2) -> None:
        self._count = count
        self._fewest = fewest
        self._crew: _Crew | None = None
        self._read: dict[int, Request] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._crew:
            self._crew.end()

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        """Read files, salvaging or not, and give each with its number among them, in any order.

        Raises `WorkerError` if a file ends two processes, and what reading it raises here.
        """
        useful = min(self._count, len(paths))
        if useful < self._fewest:
            yield from read_here(paths, salvage)
            return
        self._read = {number: Request(number, path, salvage) for number, path in enumerate(paths)}
        self._end()
        self._crew = _Crew(useful)
        # The largest first, so that no process is left with a large one at the end.
        largest_first = sorted(self._read.values(), key=lambda request: -_size(request.path))
        for number, result in self._done("reading files", largest_first):
            if isinstance(result, BaseException):
                raise result
            yield number, result

    def ask(
        self, answering: Answering, questions: Mapping[int, object]
    ) -> Iterator[tuple[int, object]]:
        """Ask about files that were read, by number; gives the answers in any order, those that there are."""
        requests = [
            Request(number, of.path, of.salvage, answering, questions[number])
            for number, of in self._read.items()
            if number in questions
        ]
        for number, answer in self._done("asking workers", requests):
            if not isinstance(answer, BaseException):
                yield number, answer

    def _done(self, name: str, requests: Sequence[Request]) -> Iterator[tuple[int, Any]]:
        """The answers to requests, or the errors, with the numbers of the files."""
        if not self._crew:
            return
        for request in requests:
            self._crew.put(request)
        for done in range(len(requests)):
            with stage(name, f"{done + 1} of {len(requests)}"):
                answer = self._crew.next()
            yield answer


class _Job(Struct):
    """What a process is to do. `tries`: how many have begun it."""

    request: Request
    tries: int = 0


class _Crew:
    """Processes that do jobs, each led by a thread that waits for it."""

    def __init__(self, count: int) -> None:
        self._jobs: list[_Job] = []
        self._change = Condition()
        self._keeper: dict[int, int] = {}
        """Which leader's process keeps the file of this number."""
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._has_ended = False
        self._leaders = [
            Thread(target=self._lead, args=(number,), daemon=True) for number in range(count)
        ]
        for leader in self._leaders:
            leader.start()

    def put(self, request: Request) -> None:
        """Have a process do this: the one that keeps the file, if there is one."""
        with self._change:
            self._jobs.append(_Job(request))
            self._change.notify_all()

    def next(self) -> tuple[int, Any]:
        """The number of a file, and the answer about it or the error."""
        return self._done.get()

    def end(self) -> None:
        """End all processes, whatever they are doing."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()
        for process in self._processes:
            process.kill()
        for leader in self._leaders:
            leader.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe and pipe.close()

    def _lead(self, number: int) -> None:
        process = None
        while (job := self._next_job(number)) is not None:
            try:
                if process is None:
                    process = self._started()
                answer = self._ask(process, job)
                if job.request.answering is None:
                    self._keeper[job.request.number] = number
            except (EOFError, OSError) as error:
                self._forget(number)
                answer = self._after_death(process, job, error)
                process = None
            except Exception as error:
                answer = error
            if answer is not None:
                self._done.put((job.request.number, answer))

    def _next_job(self, leader: int) -> _Job | None:
        """The next job whose file this leader's process keeps, or none does; waits for one. None at the end."""
        with self._change:
            while not self._has_ended:
                for place, job in enumerate(self._jobs):
                    if self._keeper.get(job.request.number, leader) == leader:
                        return self._jobs.pop(place)
                self._change.wait()
        return None

    def _forget(self, leader: int) -> None:
        """What a dead process kept is kept by none."""
        with self._change:
            for number in [number for number, by in self._keeper.items() if by == leader]:
                del self._keeper[number]
            self._change.notify_all()

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
        send(process.stdin, job.request)
        return receive(process.stdout)

    def _after_death(
        self, process: subprocess.Popen[bytes] | None, job: _Job, error: Exception
    ) -> WorkerError | None:
        """None if the job is to be done again; else the error."""
        job.tries += 1
        if process is None:
            return WorkerError(f"no process can be started: {error}", hint="use fewer --workers")
        if job.tries < MOST_TRIES:
            with self._change:
                self._jobs.append(job)
                self._change.notify_all()
            return None
        ending = _ending(process.wait())
        return WorkerError(
            f"{job.request.path}: {job.tries} processes that read it died, the last {ending}",
            hint="the memory may not suffice: use fewer --workers",
        )


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
