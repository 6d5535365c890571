"""Joins a capture, the window of steps that starts and stops it, and the hooks that see the steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from traceview.capture.record.capture import Capture
from traceview.capture.record.framework import Framework, TensorFlow
from traceview.capture.record.settings import Settings
from traceview.capture.record.training_clock import TrainingClock
from traceview.capture.sampling.machine_load import MachineLoadListener
from traceview.capture.sampling.nvml import NvmlListener
from traceview.capture.sampling.python_stacks import PythonListener
from traceview.capture.sidecar.file import Sidecar, WindowListener
from traceview.capture.steps.hooks import Place
from traceview.capture.steps.observer import Observer
from traceview.capture.window.step_window import StepWindow


class StepWatch(WindowListener):
    """Captures the steps that `settings` asks for.

    `places`: what to hook, by default all that could be a step. `step_functions`: names of the functions whose calls
    are steps, by default all that compute gradients. `counts_on`: steps are still counted when the window has closed. `launch`:
    what all captures below one command have in common. `framework`: what the script trains with, by default TensorFlow.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        *,
        places: Sequence[Place] | None = None,
        step_functions: Iterable[str] = (),
        listeners: Sequence[WindowListener] = (),
        counts_on: bool = False,
        launch: str | None = None,
        framework: Framework | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.is_finished = False
        self._counts_on = counts_on
        self.framework: Any = framework or TensorFlow()
        self.capture = Capture(settings, say, [], self.framework, launch)
        self.window = StepWindow(settings.steps, self.capture)
        self.window.seconds = settings.seconds
        self.observer: Observer
        self.hooks: Any
        self.observer, self.hooks = self.framework.watch(self.window, step_functions, places)
        self.clock = TrainingClock(self.window, self.observer, say)
        self.capture.listeners += [
            # First, because sampling has to stop when the profile has.
            PythonListener(is_wanted=settings.is_python_sampled),
            NvmlListener(is_wanted=settings.is_nvml_sampled),
            MachineLoadListener(),
            *self.framework.listeners(say),
            self,
            *listeners,
        ]

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self.capture.kept.run if self.capture.kept else None

    def finish(self, *, is_synchronised: bool) -> None:
        """The run has ended: close the window and keep what was recorded."""
        self.is_finished = True
        self.clock.stop()
        self.observer.eager.finish()
        self.window.finish(is_synchronised=is_synchronised)
        self.capture.finish(self.window)
        self.framework.forget()

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
                "is_evaluation": callee.has_replicas and not callee.is_train,
                "calls": callee.calls,
            }
            for callee in callees
        ]
        sidecar.add("steps", {"functions": functions})
        sidecar.add("hooks", {"missing": self.hooks.missing})
        runs = {callee.name: callee.runs_per_call for callee in callees}
        for function in sidecar.groups.get("placement", {}).get("functions", ()):
            if runs.get(function["step"], 0) > 1:
                function["replica_runs"] = runs[function["step"]]
        notes = [
            f"one call of {callee.name} counts as one step, but calls strategy.run {callee.runs_per_call} times in its "
            "graph"
            for callee in callees
            if callee.is_step and callee.runs_per_call > 1
        ]
        notes += self._steps_elsewhere()
        if notes:
            known = sidecar.groups.get("notes", {}).get("steps", ())
            sidecar.add("notes", {"steps": [*known, *notes]})

    def _steps_elsewhere(self) -> Iterator[str]:
        """What step functions other threads called meanwhile, as those of ClusterCoordinator do, one for each worker."""
        for callee in self.observer.step_functions:
            count = self.observer.elsewhere_recorded.get(callee.name, 0)
            if count:
                times = "once" if count == 1 else f"{count} times"
                yield (
                    f"the steps are the calls of {callee.name} by one thread; meanwhile other threads called it {times}, "
                    "which are steps of the training too, but not counted here"
                )

    def finished(self) -> None:
        """Unhook everything: from here on the script runs as without traceview."""
        self.clock.stop()
        if not self._counts_on:
            self.hooks.remove()
