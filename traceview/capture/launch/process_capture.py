"""Captures steps of whatever this process runs: from before its first step to its end, without its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from traceview.base.errors import CaptureError
from traceview.capture.launch.variable import Request
from traceview.capture.record.framework import framework_of
from traceview.capture.record.outcome import End, nothing_captured, shortcomings
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.sidecar.file import WindowListener

if TYPE_CHECKING:
    from traceview.capture.hang.watch import HangSettings, HangWatch


class ProcessCapture(StepWatch):
    """The capture of this process. `say` gets lines for the user as things happen. `framework`: what it trains with."""

    def __init__(
        self,
        request: Request,
        say: Callable[[str], None],
        listeners: Sequence[WindowListener] = (),
        *,
        framework: str = "tensorflow",
    ) -> None:
        self._say = say
        self._hangs: HangSettings | None = None
        if request.on_hang_s is not None:
            from traceview.capture.hang.watch import hang_settings

            self._hangs = hang_settings(request.on_hang_s, say)
        self._hang_watch: HangWatch | None = None
        super().__init__(
            request.settings,
            say,
            step_functions=request.step_functions,
            listeners=listeners,
            counts_on=self._hangs is not None,
            launch=request.launch,
            framework=framework_of(framework),
        )

    def start_clocks(self) -> None:
        """Count the time without a step from now."""
        self.clock.start()
        if self._hangs is not None:
            from traceview.capture.hang.watch import HangWatch

            self._hang_watch = HangWatch(self._hangs, self, self._say)
            self._hang_watch.start()

    def end_recording(self, end: End) -> None:
        """The run has ended: keep what was recorded."""
        if self._hang_watch is not None:
            self._hang_watch.stop()
        self.finish(is_synchronised=end == "ended")

    def outcome(self, end: End) -> CaptureError | None:
        """Say what the trace lacks and what recording cost. Returns why there is no trace."""
        if self.hooks.missing:
            self._say(f"note: this TensorFlow or Keras lacks {', '.join(self.hooks.missing)}")
        if self.run is None:
            return self.why_nothing(end)
        for line in shortcomings(self.window, self.capture.sidecar, self.observer):
            self._say(f"note: {line}")
        if self.window.recorded_s is None:
            self._say(str(self.window.times()))
        return None

    def why_nothing(self, end: End) -> CaptureError:
        """Why there is no trace."""
        return nothing_captured(self.window, self.observer, end)

    def remove(self) -> None:
        """Unhook everything."""
        self.clock.stop()
        self.hooks.remove()
