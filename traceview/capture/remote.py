"""How is a running job captured from outside, when it offers a profiler server?

Time is selected, never steps. All servers are asked at once, and each answers on its own: a trace that comes
over the connection, the word that it was written (on the server's own disk, which may not be ours), or why
there is none. What came is kept in one new run, one file and one sidecar per server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traceview.capture.address import Address
from traceview.capture.contents import TraceContents, read_contents
from traceview.capture.destination import RUNS, TRACE_SUFFIX, Destination, Kept, run_name
from traceview.capture.profiler_service import Answer, ProfilerService
from traceview.capture.sidecar import SUFFIX as SIDECAR_SUFFIX
from traceview.capture.sidecar import Sidecar
from traceview.errors import CaptureError, TraceFormatError, UsageError

DEFAULT_DURATION: Final = "2s"
DEFAULT_TIMEOUT: Final = "60s"
MAX_DURATION_MS: Final = 3_600_000
"""An hour; the tracer's buffers are full long before it."""
_SECOND_MS: Final = 1000
_UNITS_MS: Final = {"ms": 1, "s": _SECOND_MS, "m": 60 * _SECOND_MS}
_DURATION: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m)\s*", re.ASCII)
_SHARED_SECONDS: Final = 3.0
"""How long a file that a server has written may take to be seen here; NFS keeps listings for 3 s by default
(nfs(5), acregmin)."""
_FULL_RATIO: Final = 0.5
_SESSION: Final = "remote"
_UNSHARED: Final = "it recorded, and sent nothing that could be kept here"


@dataclass(frozen=True)
class RemoteCapture:
    """The run with what came. `problem` names the servers that sent nothing, None if all sent a trace."""

    run: Path
    problem: CaptureError | None


@dataclass(frozen=True)
class _Missing:
    address: Address
    reason: str
    is_reached: bool = True


def parse_duration(option: str, text: str) -> int:
    """`2s`, `500ms`, `1.5s` or `1m` in milliseconds; raises `UsageError`, which names the option."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text}: not a duration", hint="such as 500ms, 2s, 1.5s or 1m")
    milliseconds = round(float(match[1]) * _UNITS_MS[match[2]])
    if not 0 < milliseconds <= MAX_DURATION_MS:
        raise UsageError(
            f"{option} {text}: 1 ms to {MAX_DURATION_MS // 60_000} minutes are possible"
        )
    return milliseconds


def capture_remote(
    addresses: Sequence[Address],
    out: Path,
    *,
    duration_ms: int,
    timeout_ms: int,
    say: Callable[[str], None],
    progress: Callable[[str], None],
    run: str | None = None,
) -> RemoteCapture:
    """Have the servers record for `duration_ms` and keep what they send in a run below `out`, new or `run`.

    Waits up to `timeout_ms` for servers that do not listen yet; the others are then asked without them.
    `say` gets one line per thing to tell, `progress` what is waited for. Raises `UsageError` if `run` is no
    name of a folder, `CaptureError` if no server sent a trace, `out` cannot be written or has such files already,
    or grpcio is missing.
    """
    service = ProfilerService(addresses)
    destination = Destination(out)
    if run is not None:
        _check_vacant(destination.out / RUNS / run_name(run), addresses)
    destination.prepare()
    asked = _Asked(destination, addresses, duration_ms, timeout_ms, say)
    is_left = False
    try:
        with service.connected():
            service.wait(timeout_ms / 1000, progress)
            begun_ns = time.time_ns()
            answers = service.profile(duration_ms, asked.root, _SESSION, progress)
        return asked.keep(answers, begun_ns, run)
    except CaptureError:
        # What could not be put into its place stays where the error says that it is.
        is_left = any(asked.root.rglob(f"*{TRACE_SUFFIX}"))
        raise
    finally:
        if not is_left:
            destination.clean()


def _check_vacant(run: Path, addresses: Sequence[Address]) -> None:
    for address in addresses:
        trace = run / f"{address.file_stem}{TRACE_SUFFIX}"
        if trace.exists():
            raise CaptureError(
                f"{trace} exists and is not replaced", hint="give the run another name"
            )


class _Asked:
    """One request to all servers, and what is done with the answers."""

    def __init__(
        self,
        destination: Destination,
        addresses: Sequence[Address],
        duration_ms: int,
        timeout_ms: int,
        say: Callable[[str], None],
    ) -> None:
        self.root = destination.private
        """Where a server that cannot send writes, if it sees this path."""
        self._destination = destination
        self._addresses = addresses
        self._duration_ms = duration_ms
        self._timeout_ms = timeout_ms
        self._say = say

    def keep(self, answers: Sequence[Answer], begun_ns: int, run: str | None) -> RemoteCapture:
        """Move the traces to their run; raises `CaptureError` where that fails."""
        received: list[tuple[Answer, Path, TraceContents]] = []
        missing: list[_Missing] = []
        for answer in answers:
            found = self._trace_of(answer)
            if isinstance(found, _Missing):
                missing.append(found)
                continue
            try:
                received.append((answer, found, read_contents(found)))
            except TraceFormatError as error:
                found.unlink()
                missing.append(
                    _Missing(answer.address, f"what it sent is no trace: {error.reason}")
                )
        kept: Kept | None = None
        for answer, trace, contents in received:
            self._tell(answer.address, contents)
            sidecar = self._sidecar(answer, trace, contents, begun_ns, missing)
            kept = self._destination.keep(trace, sidecar, run=kept.run.name if kept else run)
        problem = self._problem(missing)
        if kept is None:
            assert problem is not None
            raise problem
        return RemoteCapture(kept.run, problem)

    def _trace_of(self, answer: Answer) -> Path | _Missing:
        if answer.failure is not None:
            return _Missing(answer.address, answer.failure, answer.is_reached)
        path = self.root / _SESSION / f"{answer.address.file_stem}{TRACE_SUFFIX}"
        if answer.trace is not None:
            try:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(answer.trace)
            except OSError as error:
                path.unlink(missing_ok=True)
                raise CaptureError(
                    f"--out {self._destination.out}: {error.strerror or error}"
                ) from error
            return path
        end = time.monotonic() + _SHARED_SECONDS
        while not path.is_file():
            if time.monotonic() > end:
                return _Missing(answer.address, _UNSHARED)
            time.sleep(_SHARED_SECONDS / 10)
        return path

    def _tell(self, address: Address, contents: TraceContents) -> None:
        if contents.fullest_ratio > _FULL_RATIO:
            self._say(
                f"note: {address}: the GPU tracer's buffers were {contents.fullest_ratio:.0%} full; ask for "
                "a shorter time"
            )
        for warning in contents.warnings:
            self._say(f"note: {address}: {warning}")

    def _sidecar(
        self,
        answer: Answer,
        trace: Path,
        contents: TraceContents,
        begun_ns: int,
        missing: Sequence[_Missing],
    ) -> Path:
        path = trace.with_name(f"{answer.address.file_stem}{SIDECAR_SUFFIX}")
        sidecar = Sidecar(path, "saved")
        sidecar.add(
            "remote",
            {
                "address": str(answer.address),
                "is_sent": answer.trace is not None,
                "asked": [str(address) for address in self._addresses],
                "missing": {str(gone.address): gone.reason for gone in missing},
                "duration_ms": self._duration_ms,
            },
        )
        sidecar.add("clock", {"asked": {"wall_ns": begun_ns}})
        sidecar.add("options", {"in_force": contents.options})
        sidecar.add(
            "events",
            {
                "recorded": {
                    "host": contents.host_events,
                    "callbacks": contents.callbacks,
                    "device": contents.device_events,
                }
            },
        )
        sidecar.add("file", {"name": trace.name, "bytes": contents.size, "sha256": contents.sha256})
        try:
            sidecar.write()
        except OSError as error:
            raise CaptureError(
                f"--out {self._destination.out}: {error.strerror or error}"
            ) from error
        return path

    def _problem(self, missing: Sequence[_Missing]) -> CaptureError | None:
        if not missing:
            return None
        which = "; ".join(f"{gone.address}: {gone.reason}" for gone in missing)
        count = f"{len(missing)} of {len(self._addresses)} servers sent no trace: "
        if len(self._addresses) == 1:
            count = "no trace: "
        hint = None
        if not all(gone.is_reached for gone in missing):
            hint = f"--timeout waits longer than {self._timeout_ms / _SECOND_MS:g} s for a job to come up"
        if any(gone.reason == _UNSHARED for gone in missing):
            hint = (
                "a server of TensorFlow 2.20 or older writes on its own disk, here into "
                f"{self.root / _SESSION} if it can: name an --out that has this path there too"
            )
        return CaptureError(f"{count}{which}", hint=hint)
