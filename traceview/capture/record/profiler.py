"""Starts and stops TensorFlow's profiler, which the script or a tool may be using too.

One profile can run per process. The session object is made here and not with `tf.profiler.experimental.start`: after a
start that failed because of a remote request, that module believes forever that its own profile is running (TensorFlow
2.21). While ours runs, a profile that the script starts is accepted but not recorded, because the real one would end
the script with `AlreadyExistsError`.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.process.around import Patches
from traceview.capture.sidecar.file import reason_of

_PROFILER: Final = "tensorflow.python.profiler.profiler_v2"
_TRACE: Final = "tensorflow.python.profiler.trace"
_CONTEXT: Final = "tensorflow.python.eager.context"
_SEVERAL: Final = 2
_CONCURRENT_KERNELS: Final = "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL"
SCRIPT_PROFILES: Final = "the script's own profile is running"
SCRIPT_UNRECORDED: Final = "the script's own profile was not recorded: it began inside the window"
OTHER_CAPTURE: Final = "another traceview capture is running in this process"
MARKER: Final = "train"
"""The only name that XProf as well as traceview reads as a training step (openxla/xprof, step_parser)."""


class ProfilerBusyError(CaptureError):
    """Another profile is running, and goes on."""


class Marker:
    """An open step marker. It gets its number when it is finished, so that an abandoned one has none."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def finish(self, number: int) -> None:
        """End it as the marker of step `number`."""
        self._annotation.set_metadata(step_num=number, _r=1)
        self._annotation.__exit__(None, None, None)

    def abandon(self) -> None:
        """End it as an event that marks nothing."""
        self._annotation.__exit__(None, None, None)


class OneProfile(ABC):
    """A profiler, one profile at a time. `say` gets a line when the script's own profile is not recorded."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._session: Any = None
        self._patches = Patches()

    @property
    def is_running(self) -> bool:
        """Whether our profile runs."""
        return self._session is not None

    def warm_up(self) -> None:
        """Start and drop a profile: the first one of a process loads and initialises CUPTI."""
        self.start(Path())
        session, self._session = self._session, None
        self._drop(session)
        self._patches.undo()

    @abstractmethod
    def marker(self) -> Marker:
        """Open a step marker."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until this process's devices have done what was asked of them; raises `CaptureError`."""

    @abstractmethod
    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `ProfilerBusyError`."""

    def stop(self) -> None:
        """Stop and write the trace; raises `CaptureError` if that fails."""
        session, self._session = self._session, None
        try:
            self._export(session)
        except Exception as error:
            raise CaptureError(f"the trace was not written: {error}") from error
        finally:
            self._patches.undo()

    @abstractmethod
    def _export(self, session: Any) -> None:
        """Stop a session, and write what it recorded."""

    @abstractmethod
    def _drop(self, session: Any) -> None:
        """Stop a session, and write nothing."""


class Profiler(OneProfile):
    """TensorFlow's profiler."""

    def marker(self) -> Marker:
        """Open a step marker."""
        return Marker(import_module(_TRACE).Trace(MARKER))

    def synchronise(self) -> None:
        """Wait until this process's devices are idle.

        `tf.test.experimental.sync_devices` does this, except in the cluster of a `MultiWorkerMirroredStrategy`: it also
        asks the devices of the other tasks, which always fails (TensorFlow 2.21: `InternalError`, no remote eager worker).
        There its op runs on our own devices only. Raises `CaptureError` where this TensorFlow lacks it (public since 2.12)
        or is not in eager mode.
        """
        tensorflow = sys.modules["tensorflow"]
        try:
            devices = [str(device.name) for device in tensorflow.config.list_logical_devices()]
            if len({_task_of(device) for device in devices}) < _SEVERAL:
                tensorflow.test.experimental.sync_devices()
            else:
                _synchronise_own(tensorflow, devices)
        except Exception as error:
            raise CaptureError(f"the devices were not synchronised: {reason_of(error)}") from error

    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `ProfilerBusyError`."""
        module = import_module(_PROFILER)
        if module._profiler is not None:
            raise ProfilerBusyError(SCRIPT_PROFILES)
        native = module._pywrap_profiler
        if isinstance(native, StandIn):
            raise ProfilerBusyError(OTHER_CAPTURE)
        session = native.ProfilerSession()
        self._set_concurrent_kernels()
        try:
            session.start(str(directory), {})
        except Exception as error:
            self._patches.undo()
            if type(error).__name__ == "AlreadyExistsError":
                raise ProfilerBusyError(
                    "another profile is running in this process (a remote request, or another tool)"
                ) from error
            raise CaptureError(f"the profiler did not start: {error}") from error
        self._session = session
        stand_in = StandIn(native, lambda: _UnrecordedProfile(self._say))
        self._patches.put(module, "_pywrap_profiler", stand_in)
        self._plain_markers()

    def _drop(self, session: Any) -> None:
        """Do nothing: a session of TensorFlow ends with its object."""

    def _export(self, session: Any) -> None:
        session.export_to_tb()

    def _set_concurrent_kernels(self) -> None:
        # CUPTI's older default serializes kernels, which hides their overlap.
        if _CONCURRENT_KERNELS in os.environ:
            return
        os.environ[_CONCURRENT_KERNELS] = "1"
        self._patches.then(lambda: os.environ.pop(_CONCURRENT_KERNELS, None))

    def _plain_markers(self) -> None:
        """Take the step number off the script's own markers, so that each step has one number."""
        trace_class = import_module(_TRACE).Trace
        original = trace_class.__init__

        def without_number(trace: Any, name: str, **stats: Any) -> None:
            if "_r" in stats and "step_num" in stats:
                del stats["_r"]
                stats["script_step_num"] = stats.pop("step_num")
            original(trace, name, **stats)

        self._patches.put(trace_class, "__init__", without_number)


class StandIn:
    """A native profiler module as the script sees it while our profile runs. `session`: makes what records nothing."""

    def __init__(self, native: Any, session: Callable[[], Any]) -> None:
        self._native = native
        self._session = session

    def __getattr__(self, name: str) -> Any:
        if name == "ProfilerSession":
            return lambda *_options: self._session()
        return getattr(self._native, name)


class _UnrecordedProfile:
    """A profile of the script that records nothing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def start(self, directory: str, _options: object) -> None:
        if directory:
            self._say(SCRIPT_UNRECORDED)

    def stop(self) -> None:
        return

    def export_to_tb(self) -> None:
        return


def _task_of(device: str) -> str:
    """`/job:worker/replica:0/task:1` of a full name; empty for a device without a cluster."""
    return device.rpartition("/device:")[0]


def _synchronise_own(tensorflow: ModuleType, devices: Sequence[str]) -> None:
    context = import_module(_CONTEXT)
    if not context.executing_eagerly():
        raise RuntimeError("not in eager mode")
    # Without a requested device, an op runs on one of this task.
    own = _task_of(tensorflow.constant(0).device)
    for device in devices:
        if _task_of(device) == own:
            with tensorflow.device(device):
                tensorflow.raw_ops.SyncDevice()
    context.async_wait()
