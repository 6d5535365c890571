"""Captures steps of whatever this process runs: from before its first step to its end, without its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from traceview.base.errors import CaptureError
from traceview.capture.launch.variable import Request
from traceview.capture.process.script import ScriptEnd
from traceview.capture.record.outcome import nothing_captured, shortcomings
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.remote.serve import ProfilerServer
from traceview.capture.sampling.python_stacks import cost_of_sampling
from traceview.capture.sidecar.file import WindowListener


class ProcessCapture:
    """The capture of this process. `say` gets lines for the user as things happen.

    `counts_on`: steps are counted after the window, too.
    """

    def __init__(
        self,
        request: Request,
        say: Callable[[str], None],
        listeners: Sequence[WindowListener] = (),
        *,
        counts_on: bool = False,
    ) -> None:
        self._say = say
        self._servers = [] if request.serve is None else [ProfilerServer(request.serve, say)]
        self.watch = StepWatch(
            request.settings,
            say,
            step_functions=request.step_functions,
            listeners=[*self._servers, *listeners],
            counts_on=counts_on,
        )

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self.watch.run

    def check(self) -> None:
        """Raise `CaptureError` if the port of the server is taken."""
        for server in self._servers:
            server.check()

    def prepare(self) -> None:
        """Make the folders; raises `CaptureError` if nothing can be written there."""
        self.watch.capture.prepare()
        self.watch.stop_risk.check()

    def install(self) -> None:
        """Hook TensorFlow, or wait for it to be imported."""
        self.watch.hooks.install()
        for server in self._servers:
            server.install()

    def start_clock(self) -> None:
        """Count the time without a step from now."""
        self.watch.clock.start()

    def finish(self, end: ScriptEnd) -> CaptureError | None:
        """The run has ended: keep what was recorded, and say what it lacks. Returns why there is no trace."""
        watch = self.watch
        watch.finish(is_synchronised=not (end.is_failure or end.is_interrupted))
        if watch.hooks.missing:
            self._say(f"note: this TensorFlow or Keras lacks {', '.join(watch.hooks.missing)}")
        if watch.run is None:
            return nothing_captured(watch.window, watch.observer, end)
        for line in shortcomings(watch.window, watch.capture.sidecar, watch.observer):
            self._say(f"note: {line}")
        if watch.window.recorded_s is None:
            self._say(str(watch.window.times()))
        cost = cost_of_sampling(watch.capture.sidecar)
        if cost is not None:
            self._say(cost)
        return None

    def why_unused(self, end: ScriptEnd) -> CaptureError:
        """Why there is no trace, where nothing was prepared."""
        return nothing_captured(self.watch.window, self.watch.observer, end)

    def remove(self) -> None:
        """Unhook everything."""
        self.watch.clock.stop()
        self.watch.hooks.remove()
        for server in self._servers:
            server.remove()

    def leave(self) -> None:
        """This is a forked child, and the capture its parent's: unhook, and touch nothing else."""
        self.watch.hooks.remove()
        for server in self._servers:
            server.remove()

    def drop(self) -> None:
        """Nothing was run: leave nothing behind."""
        self.watch.finish(is_synchronised=False)
