"""Captures a running job from outside, through the profiler servers that it offers.

A remote capture records a time, never steps. All servers are asked at once, and each answers on its own: with a trace,
with the news that it wrote the trace on its own disk, or with the reason why there is none. The traces go into one run,
each with a sidecar.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from traceview.base.errors import CaptureError, TraceFormatError
from traceview.capture.record.destination import TRACE_SUFFIX, Destination, Kept, run_name
from traceview.capture.record.event_limits import MAX_BUFFER_RATIO, CallEvents
from traceview.capture.record.trace_summary import TraceSummary, read_summary
from traceview.capture.remote.profiler_service import Address, Answer, ProfilerService
from traceview.capture.sidecar.file import SUFFIX as SIDECAR_SUFFIX
from traceview.capture.sidecar.file import Sidecar

_MS_PER_S: Final = 1000
_SHARED_SECONDS: Final = 3.0
"""How long a file written by a server may take to appear here; NFS caches listings for 3 s by default (nfs(5),
acregmin)."""
_SESSION: Final = "remote"
_UNSHARED: Final = "it recorded, but sent no trace"


@dataclass(frozen=True)
class RemoteCapture:
    """The run with the traces. `problem` names the servers that sent none, None if all did."""

    run: Path
    problem: CaptureError | None


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
    """Have the servers record for `duration_ms`, and keep their traces in a run below `out`, new or `run`.

    Waits up to `timeout_ms` for servers that do not listen yet, then asks those that do. `say` gets one line per
    message for the user, `progress` what is waited for. Raises `UsageError` if `run` cannot name a folder,
    `CaptureError` if no server sent a trace, `out` cannot be written or has such files already, or grpcio is missing.
    """
    service = ProfilerService(addresses)
    destination = Destination(out)
    if run is not None:
        for address in addresses:
            destination.check_vacant(run_name(run), address.file_stem)
    destination.prepare()
    request = _Request(destination, addresses, duration_ms, timeout_ms, say)
    is_left = False
    try:
        with service.connected():
            service.wait(timeout_ms / 1000, progress)
            begun_ns = time.time_ns()
            answers = service.profile(duration_ms, request.root, _SESSION, progress)
        return request.keep(answers, begun_ns, run)
    except CaptureError:
        # A trace that could not be moved stays where the error says.
        is_left = any(request.root.rglob(f"*{TRACE_SUFFIX}"))
        raise
    finally:
        if not is_left:
            destination.clean()


@dataclass(frozen=True)
class _Request:
    """One request to all servers."""

    destination: Destination
    addresses: Sequence[Address]
    duration_ms: int
    timeout_ms: int
    say: Callable[[str], None]

    @property
    def root(self) -> Path:
        """Where a server that cannot send its trace writes it, if it has this path."""
        return self.destination.private

    def keep(self, answers: Sequence[Answer], begun_ns: int, run: str | None) -> RemoteCapture:
        """Move the traces to their run; raises `CaptureError` if that fails."""
        received: list[tuple[Answer, Path, TraceSummary]] = []
        missing: list[Answer] = []
        for answer in answers:
            trace = None if answer.failure is not None else self._trace_of(answer)
            if trace is None:
                missing.append(replace(answer, failure=answer.failure or _UNSHARED))
                continue
            try:
                received.append((answer, trace, read_summary(trace)))
            except TraceFormatError as error:
                trace.unlink()
                reason = f"it sent an invalid trace: {error.reason}"
                missing.append(replace(answer, failure=reason))
        kept: Kept | None = None
        for answer, trace, summary in received:
            self._warn(answer.address, summary)
            sidecar = self._write_sidecar(answer, trace, summary, begun_ns, missing)
            kept = self.destination.keep(trace, sidecar, run=kept.run.name if kept else run)
        problem = self._problem(missing)
        if kept is None:
            assert problem is not None
            raise problem
        return RemoteCapture(kept.run, problem)

    def _trace_of(self, answer: Answer) -> Path | None:
        path = self.root / _SESSION / f"{answer.address.file_stem}{TRACE_SUFFIX}"
        if answer.trace is not None:
            try:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(answer.trace)
            except OSError as error:
                path.unlink(missing_ok=True)
                raise self.destination.error(error) from error
            return path
        end = time.monotonic() + _SHARED_SECONDS
        while not path.is_file():
            if time.monotonic() > end:
                return None
            time.sleep(_SHARED_SECONDS / 10)
        return path

    def _warn(self, address: Address, summary: TraceSummary) -> None:
        if summary.fullest_ratio > MAX_BUFFER_RATIO:
            self.say(
                f"note: {address}: the GPU tracer's buffers were {summary.fullest_ratio:.0%} full; record a "
                "shorter time"
            )
        for warning in summary.warnings:
            self.say(f"note: {address}: {warning}")

    def _write_sidecar(
        self,
        answer: Answer,
        trace: Path,
        summary: TraceSummary,
        begun_ns: int,
        missing: Sequence[Answer],
    ) -> Path:
        path = trace.with_name(f"{answer.address.file_stem}{SIDECAR_SUFFIX}")
        sidecar = Sidecar(path, "saved")
        sidecar.add(
            "remote",
            {
                "address": str(answer.address),
                "is_sent": answer.trace is not None,
                "asked": [str(address) for address in self.addresses],
                "missing": {str(other.address): other.failure for other in missing},
                "duration_ms": self.duration_ms,
            },
        )
        sidecar.add("clock", {"asked": {"wall_ns": begun_ns}})
        sidecar.add("options", {"in_force": summary.options})
        sidecar.add("events", {"recorded": CallEvents.of_trace(summary).times(1)})
        sidecar.add("file", {"name": trace.name, "bytes": summary.size, "sha256": summary.sha256})
        try:
            sidecar.write()
        except OSError as error:
            raise self.destination.error(error) from error
        return path

    def _problem(self, missing: Sequence[Answer]) -> CaptureError | None:
        if not missing:
            return None
        reasons = "; ".join(f"{answer.address}: {answer.failure}" for answer in missing)
        count = f"{len(missing)} of {len(self.addresses)} servers sent no trace: "
        if len(self.addresses) == 1:
            count = "no trace: "
        hint = None
        if not all(answer.is_reached for answer in missing):
            hint = f"if the job is still starting, --timeout waits longer than {self.timeout_ms / _MS_PER_S:g} s"
        if any(answer.failure == _UNSHARED for answer in missing):
            hint = (
                "a server of TensorFlow 2.20 or older writes its trace on its own disk, to "
                f"{self.root / _SESSION}: choose an --out that both machines share under this path"
            )
        return CaptureError(f"{count}{reasons}", hint=hint)
