"""How is TensorFlow's profiler started and stopped, when others may be using it too?

One profile can run per process. The session object is made here and not with
`tf.profiler.experimental.start`: after a start that failed because of a remote request, that module believes
for ever that its own profile is running (TensorFlow 2.21). While ours runs, a profile that the script starts
is accepted and not taken, because the real one would end the script with `AlreadyExistsError`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import Any, Final

from traceview.errors import CaptureError

_PROFILER: Final = "tensorflow.python.profiler.profiler_v2"
_TRACE: Final = "tensorflow.python.profiler.trace"
_CONTEXT: Final = "tensorflow.python.eager.context"
_SEVERAL: Final = 2
_CONCURRENT_KERNELS: Final = "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL"
_FALSE: Final = ("", "0", "false", "no")
SCRIPT_PROFILES: Final = "the script's own profile is running"
OTHER_CAPTURE: Final = "another capture of traceview is active in this process"
MARKER: Final = "train"
"""The only name that both XProf and traceview take for a training step (openxla/xprof, step_parser)."""


class ProfilerBusyError(CaptureError):
    """Another profile is running; it is left alone."""


def check_enabled() -> None:
    """Raise `CaptureError` where the environment forbids profiles.

    TensorFlow would say "another profiler is running" instead.
    """
    if os.environ.get("TF_DISABLE_PROFILING", "").strip().lower() not in _FALSE:
        raise CaptureError(
            "TF_DISABLE_PROFILING is set: TensorFlow refuses every profile",
            hint="unset TF_DISABLE_PROFILING",
        )


class Marker:
    """An open step marker. It gets its number when it is finished, so that an abandoned one has none."""

    def __init__(self) -> None:
        self._trace = import_module(_TRACE).Trace(MARKER)

    def finish(self, number: int) -> None:
        """End it as the marker of step `number`."""
        self._trace.set_metadata(step_num=number, _r=1)
        self._trace.__exit__(None, None, None)

    def abandon(self) -> None:
        """End it as an event that marks nothing."""
        self._trace.__exit__(None, None, None)


class Profiler:
    """TensorFlow's profiler, one profile at a time. `said` hears what the script did not get."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said
        self._session: Any = None
        self._restores: list[Callable[[], None]] = []

    @property
    def is_running(self) -> bool:
        """Whether a profile of ours runs."""
        return self._session is not None

    def warm_up(self) -> None:
        """Start and drop a profile: the first one of a process loads and initialises CUPTI."""
        self.start(Path())
        self.discard()

    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `ProfilerBusyError`."""
        check_enabled()
        module = import_module(_PROFILER)
        if module._profiler is not None:
            raise ProfilerBusyError(SCRIPT_PROFILES)
        native = module._pywrap_profiler
        if isinstance(native, _StandIn):
            raise ProfilerBusyError(OTHER_CAPTURE)
        session = native.ProfilerSession()
        self._set_concurrent_kernels()
        try:
            session.start(str(directory), {})
        except Exception as error:
            self._restore()
            if type(error).__name__ == "AlreadyExistsError":
                raise ProfilerBusyError(
                    "another profile is running in this process: a remote request, or a tool"
                ) from error
            raise CaptureError(f"the profiler does not start: {error}") from error
        self._session = session
        self._stand_in(module, native)
        self._plain_markers()

    def stop(self) -> None:
        """Stop and write the file; raises `CaptureError` if it cannot be written."""
        session, self._session = self._session, None
        try:
            session.export_to_tb()
        except Exception as error:
            raise CaptureError(f"the trace cannot be written: {error}") from error
        finally:
            self._restore()

    def discard(self) -> None:
        """Stop and write nothing."""
        self._session = None
        self._restore()

    def _set_concurrent_kernels(self) -> None:
        # CUPTI's older default makes kernels run one after another, which distorts what overlaps.
        if _CONCURRENT_KERNELS in os.environ:
            return
        os.environ[_CONCURRENT_KERNELS] = "1"
        self._restores.append(_unset_concurrent_kernels)

    def _stand_in(self, module: ModuleType, native: Any) -> None:
        attributes = vars(module)
        attributes["_pywrap_profiler"] = _StandIn(native, self._said)
        self._restores.append(lambda: attributes.update(_pywrap_profiler=native))

    def _plain_markers(self) -> None:
        """Take the number off markers of the script: there is one number per step, and it is ours."""
        trace_class = import_module(_TRACE).Trace
        original = trace_class.__init__

        def without_number(trace: Any, name: str, **stats: Any) -> None:
            if "_r" in stats and "step_num" in stats:
                del stats["_r"]
                stats["script_step_num"] = stats.pop("step_num")
            original(trace, name, **stats)

        trace_class.__init__ = without_number
        self._restores.append(lambda: setattr(trace_class, "__init__", original))

    def _restore(self) -> None:
        while self._restores:
            self._restores.pop()()


class _StandIn:
    """TensorFlow's native profiler module as the script sees it while our profile runs."""

    def __init__(self, native: Any, said: Callable[[str], None]) -> None:
        self._native = native
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def ProfilerSession(self) -> _UnrecordedProfile:  # noqa: N802  # the name of what it stands for
        return _UnrecordedProfile(self._said)


class _UnrecordedProfile:
    """A profile of the script that runs in name only."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self._said = said

    def start(self, directory: str, _options: object) -> None:
        if directory:
            self._said(
                f"the script's own profile into {directory} was not taken: it began inside the window"
            )

    def stop(self) -> None:
        return

    def export_to_tb(self) -> None:
        return


def _unset_concurrent_kernels() -> None:
    os.environ.pop(_CONCURRENT_KERNELS, None)


def synchronise() -> int:
    """Wait until this process's devices have done their work; nanoseconds it took.

    `tf.test.experimental.sync_devices` does it, except in the cluster of a `MultiWorkerMirroredStrategy`: it asks
    the devices of the other tasks too, which always fails there (TensorFlow 2.21: `InternalError`, no remote eager
    worker). There the op behind it runs on our own devices. Raises `CaptureError` where this TensorFlow cannot (it is
    public since 2.12 and wants eager mode).
    """
    begun = perf_counter_ns()
    tensorflow = sys.modules["tensorflow"]
    try:
        devices = [str(device.name) for device in tensorflow.config.list_logical_devices()]
        if len({_task_of(device) for device in devices}) < _SEVERAL:
            tensorflow.test.experimental.sync_devices()
        else:
            _synchronise_own(tensorflow, devices)
    except Exception as error:
        raise CaptureError(f"devices were not synchronised: {error!r}") from error
    return perf_counter_ns() - begun


def _task_of(device: str) -> str:
    """`/job:worker/replica:0/task:1` of its full name; empty for a device without a cluster."""
    return device.rpartition("/device:")[0]


def _synchronise_own(tensorflow: ModuleType, devices: Sequence[str]) -> None:
    context = import_module(_CONTEXT)
    if not context.executing_eagerly():
        raise RuntimeError("not in eager mode")
    # Where nobody names a device, an op runs on one of this task.
    own = _task_of(tensorflow.constant(0).device)
    for device in devices:
        if _task_of(device) == own:
            with tensorflow.device(device):
                tensorflow.raw_ops.SyncDevice()
    context.async_wait()
