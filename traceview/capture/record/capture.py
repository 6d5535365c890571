"""Captures the steps of a process: joins the window of steps, the hooks that see them, the profile, and its run."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from traceview.base.errors import CaptureError
from traceview.capture.process.around import interrupts_held
from traceview.capture.record.destination import TRACE_SUFFIX, Destination, RunChoice, has_trace
from traceview.capture.record.outcome import End, no_step_watch, nothing_captured, shortcomings
from traceview.capture.record.profiler import JaxProfiler, Profiler
from traceview.capture.record.settings import Settings
from traceview.capture.sampling.nvml import NvmlListener
from traceview.capture.sampling.processor_times import ProcessorTimesListener
from traceview.capture.sampling.python_sampling import PythonListener
from traceview.capture.sidecar.environment import STOP_RISK, EnvironmentListener, may_crash
from traceview.capture.sidecar.file import Sidecar, WindowListener, reason_of
from traceview.capture.steps.hooks import Hooks, Place
from traceview.capture.steps.observer import Observer, Recognizer
from traceview.capture.steps.placement import PlacementListener
from traceview.capture.window.step_window import StepWindow

Watched: TypeAlias = tuple[Recognizer, Any, Sequence[WindowListener]]
"""What counts the steps; its hooks, with `install`, `remove`, and `missing`; and what adds groups to the sidecar."""


class Framework(NamedTuple):
    """Whose versions are noted, a profiler, and what sees the steps of a window, by the places to hook (None: all)."""

    modules: Sequence[str]
    profiler: type[Profiler]
    watch: Callable[[StepWindow, Settings, Sequence[Place] | None], Watched]


def _watch(window: StepWindow, settings: Settings, places: Sequence[Place] | None) -> Watched:
    observer = Observer(window, settings.step_functions)
    placement = PlacementListener(observer, is_source_wanted="source" not in settings.without)
    return observer, Hooks(observer, places), (placement,)


def _watch_jax(window: StepWindow, settings: Settings, places: Sequence[Place] | None) -> Watched:
    """Programs of JAX hold their lines. Where `places` are given, the program itself says which its steps are."""
    from traceview.capture.jax.steps import JaxSteps

    steps = JaxSteps(window, settings.step_functions, are_marked=places is not None)
    return steps, steps.hooks, (steps, steps.hooks)


_TENSORFLOW: Final = Framework(("tensorflow", "keras", "tf_keras", "numpy"), Profiler, _watch)
_JAX: Final = Framework(
    ("jax", "jaxlib", "flax", "optax", "keras", "tensorflow", "numpy"), JaxProfiler, _watch_jax
)


def framework_in_use() -> str:
    """The name of the module that this process trains with: JAX only where TensorFlow is not imported."""
    return "jax" if "jax" in sys.modules and "tensorflow" not in sys.modules else "tensorflow"


class Capture:
    """Captures the steps of this process. `say` gets one line per message; `places`: what to hook, by default all that could be a step."""

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
        self.settings = settings
        self.sidecar = Sidecar()
        self.kept: Path | None = None
        self._say = say
        self.is_prepared = False
        self._destination = Destination(settings.out)
        self._choice = RunChoice(self._destination, settings.run, say)
        is_jax = (framework or framework_in_use()) == "jax"
        used = _JAX if is_jax else _TENSORFLOW
        self._modules = used.modules
        self.profiler = used.profiler(self._note_script)
        self.marker = self.profiler.marker
        self.window = StepWindow(settings.steps, self)
        self.observer, self.hooks, of_framework = used.watch(self.window, settings, places)
        self.clock = no_step_watch(self.window, self.observer, say)
        self._listeners = [
            # First, because sampling has to stop when the profile has.
            *([] if "python" in settings.without else [PythonListener()]),
            NvmlListener(is_wanted="nvml" not in settings.without),
            ProcessorTimesListener(),
            EnvironmentListener(),
            *of_framework,
            *listeners,
        ]

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self.kept.parent if self.kept else None

    def prepare(self) -> None:
        """Check all that can be checked before the run, once, at the latest when the window opens; raises `CaptureError`."""
        if self.is_prepared:
            return
        self._choice.check()
        self._destination.prepare()
        launch, host = self.settings.launch, socket.gethostname()
        self.sidecar.add("process", {"pid": os.getpid(), "host": host, "launch": launch})
        self._write()
        for folder in self._destination.left_behind():
            if has_trace(folder):
                self._say(f"note: {folder} was left by a capture that was killed")
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self.is_prepared = True

    def start_clocks(self) -> None:
        """Count the time without a step from now."""
        self.clock.start()
        if self.companion is not None:
            self.companion.start()

    def finish(self, end: End) -> None:
        """The run has ended: unhook everything, close the window, keep what there is, and leave nothing else behind."""
        if self.companion is not None:
            self.companion.stop()
        self.remove()
        self.observer.finish()
        self.window.finish(is_synchronised=end == "ended")
        if self.profiler.is_running:
            # An interruption came while the window was closed.
            with suppress(CaptureError):
                self.close()
        self._finished()
        if self.kept is None:
            self._choice.abandon()
        if self.kept is None and has_trace(self._destination.private):
            self._say(f"note: the unfinished trace is in {self._destination.private}")
        else:
            self._destination.clean()

    def outcome(self, end: End) -> CaptureError | None:
        """Say what the trace lacks and what recording cost. Returns why there is no trace."""
        if self.hooks.missing:
            self._say(f"note: this TensorFlow or Keras lacks {', '.join(self.hooks.missing)}")
        if self.run is None:
            return nothing_captured(self.window, self.observer, end)
        for line in shortcomings(self.window, self.sidecar, self.observer):
            self._say(f"note: {line}")
        self._say(str(self.window.times()))
        return None

    def remove(self) -> None:
        """Unhook everything, and look no more."""
        self.clock.stop()
        self.hooks.remove()

    def report_place(self) -> tuple[Path, str]:
        """The folder of the run and the name of this host's files in it; the trace follows into it. Raises `OSError`."""
        if self.kept is None:
            self._choice.settle(self.settings.steps)
            return self._choice.folder(), f"{socket.gethostname()}{self._choice.suffix}"
        return self.kept.parent, self.kept.name.removesuffix(TRACE_SUFFIX)

    def open(self) -> None:
        """Start the profile, after warming it up and waiting for the devices."""
        self.prepare()
        self._choice.settle(self.settings.steps)
        if "tensorflow" in self._modules and may_crash(os.environ):
            self._say(f"note: {STOP_RISK}")
        self._notify("opening", self.sidecar)
        self.profiler.warm_up()
        self.synchronise()
        starting = {"wall_ns": time.time_ns()}
        self.profiler.start(self._destination.private / "profile")
        self.sidecar.state = "recording"
        # TensorFlow 2.15 writes no times of the profile. Newer ones read the first before they start any tracer.
        self.sidecar.add("clock", {"starting": starting, "started": {"wall_ns": time.time_ns()}})
        # Of what the script has imported; an installed package need not be the one that runs.
        imported = [name for name in self._modules if name in sys.modules]
        versions = {name: getattr(sys.modules[name], "__version__", None) for name in imported}
        self.sidecar.add("versions", {"python": platform.python_version(), **versions})
        self._notify("opened", self.sidecar)

    def synchronise(self) -> None:
        """Wait for the devices, before the profile starts and before it stops."""
        try:
            self.profiler.synchronise()
        except Exception as error:
            reason = f"the devices were not synchronised: {reason_of(error)}"
            self.sidecar.note("profiler", reason)

    def close(self) -> None:
        """Stop the profile and move it to its place; Ctrl-C waits until that is done."""
        with interrupts_held():
            self.sidecar.add("clock", {"stopped": {"wall_ns": time.time_ns()}})
            try:
                self.profiler.stop()
                self._keep()
            finally:
                if self.kept is None:
                    self.sidecar.state = "failed"
                self._finished()

    def _keep(self) -> None:
        trace = self._destination.written(self._destination.private / "profile")
        self.sidecar.add("notes", {})
        self.sidecar.add("window", self.window.as_json())
        self.sidecar.add("overhead", self.window.times().as_json())
        self._choice.say_absent()
        self._notify("closed", self.sidecar, trace)
        # After the listeners, which describe the graphs.
        self._attempt("functions", self._describe_functions)
        self.sidecar.state = "saved"
        self._write()
        self.kept = self._choice.keep(trace)
        # The script may go on for days; a kill in between should not leave the folder behind.
        self._destination.clean()

    def _finished(self) -> None:
        self.clock.stop()
        if self.companion is None:
            self._attempt("hooks", self.hooks.remove)
        self._notify("finished")

    def _describe_functions(self) -> None:
        callees = [callee for callee in self.observer.callees if callee.calls]
        fields = ("name", "kind", "is_step", "calls")
        functions = [{field: getattr(each, field) for field in fields} for each in callees]
        self.sidecar.add("steps", {"functions": functions})
        self.sidecar.add("hooks", {"missing": self.hooks.missing})
        for remark in self.observer.remarks():
            self.sidecar.note("steps", remark)

    def _notify(self, moment: str, *arguments: Any) -> None:
        for each in self._listeners:
            self._attempt(f"{type(each).__name__}.{moment}", getattr(each, moment), *arguments)

    def _attempt(self, what: str, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self.sidecar.note("listeners", f"{what}: {reason_of(error)}")

    def _note_script(self, text: str) -> None:
        self.sidecar.note("script", text)
        self._say(f"note: {text}")

    def _write(self) -> None:
        try:
            self.sidecar.write(self._destination.sidecar)
        except OSError as error:
            raise self._destination.error(error) from error
