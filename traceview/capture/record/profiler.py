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
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

from traceview.base.errors import CaptureError
from traceview.capture.process.around import Patches
from traceview.capture.sidecar.file import reason_of

_TRACE: Final = "tensorflow.python.profiler.trace"
_CONTEXT: Final = "tensorflow.python.eager.context"
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

    module: ClassVar[str]
    """The Python module of the framework through which the script profiles."""

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

    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `ProfilerBusyError`."""
        module = import_module(self.module)
        if self._is_profiling(module):
            raise ProfilerBusyError(SCRIPT_PROFILES)
        native = self._native(module)
        if isinstance(native, StandIn):
            raise ProfilerBusyError(OTHER_CAPTURE)
        try:
            self._session = self._begin(native, str(directory))
        except Exception as error:
            self._patches.undo()
            if type(error).__name__ == "AlreadyExistsError":
                raise ProfilerBusyError(
                    "another profile is running in this process (a remote request, or another tool)"
                ) from error
            raise CaptureError(f"the profiler did not start: {error}") from error
        self._replace(module, StandIn(native, lambda: _UnrecordedProfile(module, self._say)))

    def stop(self) -> None:
        """Stop and write the trace; raises `CaptureError` if that fails."""
        session, self._session = self._session, None
        try:
            self._export(session)
        except Exception as error:
            raise CaptureError(f"the trace was not written: {error}") from error
        finally:
            self._patches.undo()

    def synchronise(self) -> None:
        """Wait until this process's devices have done what was asked of them; raises `CaptureError`."""
        try:
            self._await_devices()
        except Exception as error:
            raise CaptureError(f"the devices were not synchronised: {reason_of(error)}") from error

    @abstractmethod
    def marker(self) -> Marker:
        """Open a step marker."""

    @abstractmethod
    def _await_devices(self) -> None: ...

    @abstractmethod
    def _is_profiling(self, module: Any) -> bool: ...

    @abstractmethod
    def _native(self, module: Any) -> Any: ...

    @abstractmethod
    def _begin(self, native: Any, directory: str) -> Any: ...

    @abstractmethod
    def _replace(self, module: Any, stand_in: StandIn) -> None: ...

    @abstractmethod
    def _export(self, session: Any) -> None: ...

    @abstractmethod
    def _drop(self, session: Any) -> None: ...


class Profiler(OneProfile):
    """TensorFlow's profiler."""

    module = "tensorflow.python.profiler.profiler_v2"

    def marker(self) -> Marker:
        """Open a step marker."""
        return Marker(import_module(_TRACE).Trace(MARKER))

    def _await_devices(self) -> None:
        """Run the op of `tf.test.experimental.sync_devices` on each device of this task.

        The function itself also asks those of the other tasks of a `MultiWorkerMirroredStrategy`, which always fails (TensorFlow
        2.21: `InternalError`, no remote eager worker).
        """
        tensorflow, context = sys.modules["tensorflow"], import_module(_CONTEXT)
        if not context.executing_eagerly():
            raise RuntimeError("not in eager mode")
        # Without a requested device, an op runs on one of this task.
        own = tensorflow.constant(0).device.rpartition("/device:")[0]
        for device in tensorflow.config.list_logical_devices():
            if device.name.rpartition("/device:")[0] in ("", own):
                with tensorflow.device(device.name):
                    tensorflow.raw_ops.SyncDevice()
        context.async_wait()

    def _is_profiling(self, module: Any) -> bool:
        return module._profiler is not None

    def _native(self, module: Any) -> Any:
        return module._pywrap_profiler

    def _begin(self, native: Any, directory: str) -> Any:
        session = native.ProfilerSession()
        if _CONCURRENT_KERNELS not in os.environ:
            # CUPTI's older default serializes kernels, which hides their overlap.
            os.environ[_CONCURRENT_KERNELS] = "1"
            self._patches.then(lambda: os.environ.pop(_CONCURRENT_KERNELS, None))
        session.start(directory, {})
        return session

    def _replace(self, module: Any, stand_in: StandIn) -> None:
        self._patches.put(module, "_pywrap_profiler", stand_in)
        # Take the step number off the script's own markers, so that each step has one number.
        trace_class = import_module(_TRACE).Trace
        original = trace_class.__init__

        def without_number(trace: Any, name: str, **stats: Any) -> None:
            if "_r" in stats and "step_num" in stats:
                del stats["_r"]
                stats["script_step_num"] = stats.pop("step_num")
            original(trace, name, **stats)

        self._patches.put(trace_class, "__init__", without_number)

    def _export(self, session: Any) -> None:
        session.export_to_tb()

    def _drop(self, session: Any) -> None:
        """Do nothing: a session of TensorFlow ends with its object."""


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
    """A profile of the script that records nothing; JAX starts one when it makes it, TensorFlow when a folder is given."""

    def __init__(self, module: Any, say: Callable[[str], None]) -> None:
        self._module = module
        self._say = say
        if hasattr(module, "_profile_state"):
            say(SCRIPT_UNRECORDED)

    def start(self, directory: str, _options: object) -> None:
        if directory:
            self._say(SCRIPT_UNRECORDED)

    def stop(self) -> bytes:
        return b""

    def export_to_tb(self) -> None:
        return

    def stop_and_export(self, _directory: str) -> None:
        # There is no trace to make one for Perfetto of.
        self._module._profile_state.create_perfetto_trace = False

    def export(self, _profile: bytes, directory: str) -> None:
        self.stop_and_export(directory)
