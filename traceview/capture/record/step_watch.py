"""Joins a capture, the window of steps that starts and stops it, and the hooks that see the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traceview.base.errors import CaptureError
from traceview.capture.record.capture import Capture
from traceview.capture.record.framework import framework_in_use, framework_of
from traceview.capture.record.outcome import End, nothing_captured, shortcomings
from traceview.capture.record.settings import Settings
from traceview.capture.record.training_clock import TrainingClock
from traceview.capture.sampling.machine_load import MachineLoadListener
from traceview.capture.sampling.nvml import NvmlListener
from traceview.capture.sampling.python_stacks import PythonListener
from traceview.capture.sampling.thread_times import ThreadTimesListener
from traceview.capture.sidecar.file import Sidecar, WindowListener
from traceview.capture.steps.hooks import Place
from traceview.capture.window.step_window import StepWindow


class StepWatch(WindowListener):
    """Captures the steps of this process that `settings` ask for. `say` gets lines for the user as things happen.

    `places`: what to hook, by default all that could be a step. `framework`: the name of the module that the script trains
    with, by default the one that is imported.
    """

    companion: Any = None
    """What watches the steps, too, once they may begin, and as long as the process runs; it has `start` and `stop`."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        listeners: Sequence[WindowListener] = (),
        *,
        places: Sequence[Place] | None = None,
        framework: str | None = None,
    ) -> None:
        self._say = say
        used = framework_of(framework or framework_in_use())
        self.capture = Capture(settings, say, used)
        self.window = StepWindow(settings.steps, self.capture)
        self.observer, self.hooks, of_framework = used.watch(self.window, settings, places, say)
        self.clock = TrainingClock(self.window, self.observer, say)
        self.capture.listeners += [
            # First, because sampling has to stop when the profile has.
            PythonListener(is_wanted="python" not in settings.without),
            NvmlListener(is_wanted="nvml" not in settings.without),
            MachineLoadListener(),
            ThreadTimesListener(),
            *of_framework,
            self,
            *listeners,
        ]

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self.capture.kept.run if self.capture.kept else None

    def start_clocks(self) -> None:
        """Count the time without a step from now."""
        self.clock.start()
        if self.companion is not None:
            self.companion.start()

    def finish(self, end: End) -> None:
        """The run has ended: close the window and keep what was recorded."""
        if self.companion is not None:
            self.companion.stop()
        self.clock.stop()
        self.observer.eager.finish()
        self.window.finish(is_synchronised=end == "ended")
        self.capture.finish(self.window)

    def outcome(self, end: End) -> CaptureError | None:
        """Say what the trace lacks and what recording cost. Returns why there is no trace."""
        if self.hooks.missing:
            self._say(f"note: this TensorFlow or Keras lacks {', '.join(self.hooks.missing)}")
        if self.run is None:
            return self.why_nothing(end)
        for line in shortcomings(self.window, self.capture.sidecar, self.observer):
            self._say(f"note: {line}")
        self._say(str(self.window.times()))
        return None

    def why_nothing(self, end: End) -> CaptureError:
        """Why there is no trace."""
        return nothing_captured(self.window, self.observer, end)

    def remove(self) -> None:
        """Unhook everything."""
        self.clock.stop()
        self.hooks.remove()

    # Called by the capture

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """Describe the functions that the hooks saw; a loop of the user's own names its steps itself."""
        callees = [callee for callee in self.observer.callees if callee.calls]
        if not callees:
            return
        functions = [
            {
                "name": callee.name,
                "kind": callee.kind,
                "is_step": callee.is_step,
                "calls": callee.calls,
            }
            for callee in callees
        ]
        sidecar.add("steps", {"functions": functions})
        sidecar.add("hooks", {"missing": self.hooks.missing})
        for function in sidecar.groups.get("placement", {}).get("functions", ()):
            of_name = [callee for callee in callees if callee.name == function["step"]]
            runs = max((callee.runs_per_call for callee in of_name), default=0)
            function.update({"replica_runs": runs} if runs > 1 else {})
        remarks = [*sidecar.groups.get("notes", {}).get("steps", ()), *self.observer.remarks()]
        if remarks:
            sidecar.add("notes", {"steps": remarks})

    def finished(self) -> None:
        """Unhook everything: from here on the script runs as without traceview."""
        self.clock.stop()
        if self.companion is None:
            self.hooks.remove()
