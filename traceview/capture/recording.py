"""One capture: what happens when its window opens and closes, and what is kept of it?"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from traceview.capture.contents import TraceContents, read_contents
from traceview.capture.destination import Destination, Kept, kept_name, run_name
from traceview.capture.event_limits import (
    FEWEST_CALLS,
    MAX_BUFFER_RATIO,
    CallEvents,
    EventLimits,
)
from traceview.capture.profiler import Marker, Profiler, check_enabled, synchronise
from traceview.capture.recorder import Recorder
from traceview.capture.run_choice import RunChoice
from traceview.capture.sidecar import Sidecar, WindowListener
from traceview.capture.tracer_options import describe_options
from traceview.capture.window import StepWindow
from traceview.errors import CaptureError


@dataclass(frozen=True)
class Settings:
    """What a capture is asked to do.

    `max_events`: the window ends early rather than hold more events than this, of all kinds together; None
    leaves only the limits of the GPU tracer. `run`: the name of the run, None for that of the cluster, or the
    time. Raises `UsageError` if it is no name of a folder.
    """

    out: Path
    window: StepWindow
    is_synchronised: bool = True
    max_events: int | None = None
    run: str | None = None
    is_nvml_sampled: bool = True

    def __post_init__(self) -> None:
        if self.run is not None:
            run_name(self.run)


class Capture:
    """Starts, stops and keeps one profile, and writes its sidecar. `say` gets one line per thing to tell."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        listeners: Sequence[WindowListener] = (),
    ) -> None:
        self.settings = settings
        self.recorder = Recorder(settings.window, self)
        self.sidecar = Sidecar()
        self.kept: Kept | None = None
        self.is_done: Callable[[], None] = lambda: None
        """Called when the window has closed and nothing has to be watched any more."""
        self.describe: Callable[[], dict[str, dict[str, Any]]] = dict
        """Groups for the sidecar that only whoever watches the steps knows."""
        self.ops_per_call: Callable[[int], int | None] = lambda _count: None
        """How many ops a call of so many steps runs, by the graphs of the step functions; None if none is known."""
        self._say = say
        self._listeners = listeners
        self._notes: dict[str, list[str]] = {}
        self._destination = Destination(settings.out)
        self._choice = RunChoice(self._destination, settings.run, say)
        self._profiler = Profiler(self._note_script)
        self._sync_ns: dict[str, int] = {}

    def prepare(self) -> None:
        """Check all that can be checked before the run; raises `CaptureError`."""
        check_enabled()
        self._choice.check()
        self._destination.prepare()
        self.sidecar.path = self._destination.sidecar
        self.sidecar.add(
            "process", {"pid": os.getpid(), "host": socket.gethostname(), "python": _python()}
        )
        self.sidecar.add("window", {"asked": _bounds(self.settings.window)})
        self.sidecar.add("clock", {"prepared": _clocks()})
        self._write()
        for folder in self._destination.left_behind():
            self._say(f"note: {folder} is of a capture that was killed before its end")

    def finish(self, *, is_synchronised: bool) -> None:
        """The run has ended: stop what runs, keep what there is, leave nothing else behind.

        What went wrong is in `recorder.failures`.
        """
        self.recorder.finish(is_synchronised=is_synchronised)
        if self._profiler.is_running:
            # An interruption came while the window was closed.
            with suppress(CaptureError):
                self.close(is_synchronised=False)
        self.is_done()
        if self.kept is None:
            self._choice.abandon()
        if self.kept is None and self._destination.has_trace():
            self._say(f"note: what was written stays in {self._destination.private}")
        else:
            self._destination.clean()

    # What the recorder asks for

    def open(self) -> None:
        """Start the profile: warm-up and waiting for the devices come before it."""
        self._choice.settle(self.settings.window, self.sidecar)
        self._tell("opening", self.sidecar)
        begun = time.perf_counter_ns()
        self._profiler.warm_up()
        warmed = time.perf_counter_ns()
        self._synchronise("before")
        self._profiler.start(self._destination.private / "profile")
        self.sidecar.state = "recording"
        self.sidecar.add("clock", {"started": _clocks()})
        self.sidecar.add("profiler", {"warm_up_ns": warmed - begun})
        self.sidecar.add("versions", _versions())
        try:
            self.sidecar.write()
        except OSError as error:
            # The profile runs, and there may be room again when it ends.
            self._note("sidecar", str(error))
        self._tell("opened", self.sidecar)

    def close(self, *, is_synchronised: bool) -> None:
        """Stop the profile and move it to its place."""
        if is_synchronised:
            self._synchronise("after")
        begun = time.perf_counter_ns()
        self.sidecar.add("clock", {"stopped": _clocks()})
        try:
            self._profiler.stop()
            self.sidecar.add("profiler", {"stop_ns": time.perf_counter_ns() - begun})
            self._keep()
        except Exception as error:
            self.sidecar.state = "failed"
            self.sidecar.add("failure", {"reason": str(error)})
            with suppress(OSError):
                self.sidecar.write()
            raise
        finally:
            self.is_done()

    def probe(self) -> None:
        """Profile one call on its own; it also initialises CUPTI, long before the window."""
        self._synchronise("before_probe")
        self._profiler.start(self._destination.private / "probe")

    def end_probe(self, count: int) -> int | None:
        """Count its events, warn if the window has too many, and say how many calls may be recorded."""
        self._synchronise("after_probe")
        self._profiler.stop()
        directory = self._destination.private / "probe"
        found = read_contents(self._destination.written(directory))
        shutil.rmtree(directory, ignore_errors=True)
        return self._limit(CallEvents.counted(found), "probe", count)

    def estimate(self, count: int) -> int | None:
        """The same where no call was probed, by the graphs of the step functions."""
        has_gpus = bool(sys.modules["tensorflow"].config.list_logical_devices("GPU"))
        ops = None
        try:
            ops = self.ops_per_call(count)
        except Exception as error:
            self._note("events", f"the graph was not counted: {error!r}")
        if ops is not None:
            return self._limit(CallEvents.of_ops(ops, has_gpus=has_gpus), "graph", count)
        if has_gpus or self.settings.max_events is not None:
            self._say(
                "note: no call before the window was probed, and no graph of it is known, so "
                f"{self._limits} is not kept to"
            )
        return None

    def marker(self) -> Marker:
        """A step marker that opens now."""
        return Marker()

    # Inside

    @property
    def _limits(self) -> EventLimits:
        return EventLimits(self.settings.max_events)

    def _limit(self, one: CallEvents, source: Literal["probe", "graph"], count: int) -> int | None:
        window = self.settings.window
        wanted = -(-(window.last - window.first) // count) + 2
        self.sidecar.add("events", self._limits.describe(one, source, wanted=wanted))
        warning = self._limits.warning(one, source, wanted=wanted)
        if warning is not None:
            self._say(f"note: {warning}")
        allowed = self._limits.allowed_calls(one)
        return None if allowed is None else max(allowed, FEWEST_CALLS)

    def _synchronise(self, edge: str) -> None:
        if not self.settings.is_synchronised:
            return
        try:
            self._sync_ns[edge] = synchronise()
        except CaptureError as error:
            self._note("profiler", error.message)

    def _keep(self) -> None:
        trace = self._destination.written(self._destination.private / "profile")
        contents = read_contents(trace)
        self._describe_recording(contents)
        if contents.fullest_ratio > MAX_BUFFER_RATIO:
            self._say(
                f"note: the GPU tracer's buffers were {contents.fullest_ratio:.0%} full; ask for fewer steps"
            )
        for warning in contents.warnings:
            self._say(f"note: {warning}")
        self._choice.describe(self.sidecar)
        self._tell("closed", self.sidecar, trace)
        # With what the listeners could not do.
        self.sidecar.add("notes", self._notes)
        self.sidecar.state = "saved"
        self.sidecar.add(
            "file",
            {
                "name": kept_name(trace, self._choice.suffix),
                "bytes": contents.size,
                "sha256": contents.sha256,
            },
        )
        self._write()
        self.kept = self._destination.keep(
            trace, self._destination.sidecar, run=self._choice.run, suffix=self._choice.suffix
        )
        # The script may go on for days; a kill in between should not leave the folder behind.
        self._destination.clean()
        self.sidecar.path = None

    def _describe_recording(self, contents: TraceContents) -> None:
        recorder = self.recorder
        calls = recorder.calls
        self.sidecar.add(
            "window",
            {
                "asked": _bounds(self.settings.window),
                "got": list(recorder.got) if recorder.got else None,
                "is_whole": recorder.is_whole,
                "edge_steps": [
                    number
                    for call in calls
                    if call.is_edge
                    for number in range(call.number, call.number + call.count)
                ],
                "traced_steps": [call.number for call in calls if call.is_traced],
                "cut_steps": [call.number for call in calls if call.is_cut],
                "steps_per_call": sorted({call.count for call in calls}),
                "calls": [asdict(call) for call in calls],
            },
        )
        self.sidecar.add("overhead", recorder.times().as_json())
        self.sidecar.add("sync", {"is_asked": self.settings.is_synchronised, "ns": self._sync_ns})
        version = str(self.sidecar.groups.get("versions", {}).get("tensorflow", ""))
        self.sidecar.add("options", describe_options(version, contents.options))
        self.sidecar.add("events", {"recorded": CallEvents.counted(contents).times(1)})
        if contents.warnings:
            self._notes.setdefault("trace", []).extend(contents.warnings)
        for group, values in self.describe().items():
            self.sidecar.add(group, values)

    def _tell(self, moment: str, *arguments: Any) -> None:
        for listener in self._listeners:
            try:
                getattr(listener, moment)(*arguments)
            except Exception as error:
                self._note("listeners", f"{type(listener).__name__}.{moment}: {error!r}")

    def _note(self, about: str, text: str) -> None:
        notes = self._notes.setdefault(about, [])
        if text not in notes:
            notes.append(text)

    def _note_script(self, text: str) -> None:
        self._note("script", text)
        self._say(f"note: {text}")

    def _write(self) -> None:
        try:
            self.sidecar.write()
        except OSError as error:
            raise CaptureError(
                f"--out {self._destination.out}: {error.strerror or error}"
            ) from error


def _bounds(window: StepWindow) -> list[int]:
    return [window.first, window.last]


def _clocks() -> dict[str, int]:
    return {"wall_ns": time.time_ns(), "monotonic_ns": time.perf_counter_ns()}


def _python() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def _versions() -> dict[str, str | None]:
    """Of what the script has imported; asking an installed package would not tell what runs."""
    names = ("tensorflow", "keras", "tf_keras", "numpy")
    found = {
        name: getattr(sys.modules[name], "__version__", None)
        for name in names
        if name in sys.modules
    }
    return {"python": _python(), **found}
