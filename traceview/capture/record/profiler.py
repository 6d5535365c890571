"""Starts and stops the profiler of TensorFlow or JAX, of which one profile can run per process.

The session object is made here: after a `tf.profiler.experimental.start` that failed, that module believes forever that its own
profile runs (TensorFlow 2.21). While ours runs, one of the script records nothing, where an `AlreadyExistsError` would end it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.process.around import Patches

_TRACE: Final = "tensorflow.python.profiler.trace"
_CONCURRENT_KERNELS: Final = "TF_GPU_CUPTI_FORCE_CONCURRENT_KERNEL"
_OTHER: Final = "another profile is running in this process: a remote request, or another tool"
SCRIPT_PROFILES: Final = "the script's own profile is running"
SCRIPT_UNRECORDED: Final = "the script's own profile was not recorded: it began inside the window"
MARKER: Final = "train"
"""The only name that XProf as well as traceview reads as a training step (openxla/xprof, step_parser)."""


class Marker:
    """An open step marker."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def finish(self, number: int | None) -> None:
        """End it as the marker of a step, or, without a number, as an event that marks nothing."""
        if number is not None:
            self._annotation.set_metadata(step_num=number, _r=1)
        self._annotation.__exit__(None, None, None)


class Profiler:
    """TensorFlow's profiler. `say` gets a line when the script's own profile is not recorded."""

    _module = "tensorflow.python.profiler.profiler_v2"
    """The Python module through which the script profiles."""
    _own_profile = attrgetter("_profiler")

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
        # Where that fails it ends with its object.
        with suppress(Exception):
            session.stop()
        self._patches.undo()

    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `CaptureError`, also where another one runs."""
        module = import_module(self._module)
        if self._own_profile(module) is not None:
            raise CaptureError(SCRIPT_PROFILES)
        native = self._native(module)
        if isinstance(native, _StandIn):
            raise CaptureError("another traceview capture is running in this process")
        try:
            self._session = self._begin(native, str(directory))
        except Exception as error:
            self._patches.undo()
            is_other = type(error).__name__ == "AlreadyExistsError"
            reason = _OTHER if is_other else f"the profiler did not start: {error}"
            raise CaptureError(reason) from error
        self._replace(module, _StandIn(native, lambda: _UnrecordedProfile(module, self._say)))

    def stop(self) -> None:
        """Stop and write the trace; raises `CaptureError` if that fails."""
        session, self._session = self._session, None
        try:
            self._export(session)
        except Exception as error:
            raise CaptureError(f"the trace was not written: {error}") from error
        finally:
            self._patches.undo()

    def marker(self) -> Marker:
        """Open a step marker."""
        return Marker(import_module(_TRACE).Trace(MARKER))

    def _native(self, module: Any) -> Any:
        return module._pywrap_profiler

    def synchronise(self) -> None:
        """Wait for this process's devices, each by the op of `tf.test.experimental.sync_devices`, which fails on those of other tasks."""
        tensorflow = sys.modules["tensorflow"]
        context = import_module("tensorflow.python.eager.context")
        if not context.executing_eagerly():
            raise RuntimeError("not in eager mode")
        # Without a requested device, an op runs on one of this task.
        own = tensorflow.constant(0).device.rpartition("/device:")[0]
        for device in tensorflow.config.list_logical_devices():
            if device.name.rpartition("/device:")[0] in ("", own):
                with tensorflow.device(device.name):
                    tensorflow.raw_ops.SyncDevice()
        context.async_wait()

    def _begin(self, native: Any, directory: str) -> Any:
        session = native.ProfilerSession()
        if _CONCURRENT_KERNELS not in os.environ:
            # CUPTI's older default serializes kernels, which hides their overlap.
            os.environ[_CONCURRENT_KERNELS] = "1"
            self._patches.then(lambda: os.environ.pop(_CONCURRENT_KERNELS, None))
        session.start(directory, {})
        return session

    def _replace(self, module: Any, stand_in: _StandIn) -> None:
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


class JaxProfiler(Profiler):
    """JAX's profiler."""

    _module = "jax._src.profiler"
    _own_profile = attrgetter("_profile_state.profile_session")

    def marker(self) -> Marker:
        """Open a step marker."""
        annotation = self._native(import_module(self._module)).TraceMe(MARKER)
        annotation.__enter__()
        return Marker(annotation)

    def synchronise(self) -> None:
        """Wait for every array that is alive, and every effect such as a callback."""
        jax = sys.modules["jax"]
        jax.effects_barrier()
        for array in jax.live_arrays():
            # A donated one may be deleted meanwhile.
            if not array.is_deleted():
                array.block_until_ready()

    def _native(self, module: Any) -> Any:
        return module._profiler if hasattr(module, "_profiler") else module.xla_client.profiler

    def _begin(self, native: Any, directory: str) -> Any:
        options = native.ProfileOptions()
        # The Python tracer makes steps several times as long. That of the devices is on, and some versions have no option for it.
        options.host_tracer_level, options.python_tracer_level = 2, 0
        self._directory = directory
        return native.ProfilerSession(options)

    def _replace(self, module: Any, stand_in: _StandIn) -> None:
        if hasattr(module, "_profiler"):
            self._patches.put(module, "_profiler", stand_in)
        else:
            # The module through which JAX before 0.8 reaches the native profiler.
            known = {**vars(module.xla_client), "profiler": stand_in}
            self._patches.put(module, "xla_client", SimpleNamespace(**known))

    def _export(self, session: Any) -> None:
        if hasattr(session, "stop_and_export"):
            session.stop_and_export(self._directory)
        else:
            session.export(session.stop(), self._directory)


class _StandIn:
    """A native profiler module as the script sees it while our profile runs. `session`: makes what records nothing."""

    def __init__(self, native: Any, session: Callable[[], Any]) -> None:
        self._native = native
        self.ProfilerSession = lambda *_options: session()

    def __getattr__(self, name: str) -> Any:
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

    def __getattr__(self, _name: str) -> Callable[..., bytes]:
        # There is no trace to stop and to export, nor to make one for Perfetto of.
        if hasattr(self._module, "_profile_state"):
            self._module._profile_state.create_perfetto_trace = False
        return lambda *_: b""
