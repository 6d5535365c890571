"""Starts and stops JAX's profiler, which the script may be using too.

The session is made here and not with `jax.profiler.start_trace`, whose Python tracer, on by default, makes steps several
times as long. One profile can run per process: while ours does, one that the script starts is accepted but not recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.record.profiler import (
    MARKER,
    OTHER_CAPTURE,
    SCRIPT_PROFILES,
    SCRIPT_UNRECORDED,
    Marker,
    OneProfile,
    ProfilerBusyError,
    StandIn,
)
from traceview.capture.sidecar.file import reason_of

MODULE: Final = "jax._src.profiler"
_HOLDERS: Final = ("_profiler", "xla_client")
"""The name in JAX's module by which it reaches the native profiler: since 0.8, and before."""


class JaxProfiler(OneProfile):
    """JAX's profiler."""

    def marker(self) -> Marker:
        """Open a step marker."""
        annotation = _native(import_module(MODULE)).TraceMe(MARKER)
        annotation.__enter__()
        return Marker(annotation)

    def synchronise(self) -> None:
        """Wait for every array that is alive, and every effect such as a callback; raises `CaptureError` if one failed."""
        jax = sys.modules["jax"]
        try:
            jax.effects_barrier()
            for array in jax.live_arrays():
                # A donated one may be deleted meanwhile.
                if not array.is_deleted():
                    array.block_until_ready()
        except Exception as error:
            raise CaptureError(f"the devices were not synchronised: {reason_of(error)}") from error

    def start(self, directory: Path) -> None:
        """Start a profile that will be written below `directory`; raises `ProfilerBusyError`."""
        module = import_module(MODULE)
        if module._profile_state.profile_session is not None:
            raise ProfilerBusyError(SCRIPT_PROFILES)
        native = _native(module)
        if isinstance(native, StandIn):
            raise ProfilerBusyError(OTHER_CAPTURE)
        options = native.ProfileOptions()
        # That of the devices is on in all versions, and some have no option for it.
        options.host_tracer_level, options.python_tracer_level = 2, 0
        try:
            self._session = native.ProfilerSession(options)
        except Exception as error:
            raise CaptureError(f"the profiler did not start: {error}") from error
        self._directory = str(directory)
        stand_in = StandIn(native, lambda: _UnrecordedProfile(module, self._say))
        holder = _holder(module)
        through = stand_in if holder == _HOLDERS[0] else _Holder(getattr(module, holder), stand_in)
        self._patches.put(module, holder, through)

    def _export(self, session: Any) -> None:
        if hasattr(session, "stop_and_export"):
            session.stop_and_export(self._directory)
        else:
            session.export(session.stop(), self._directory)

    def _drop(self, session: Any) -> None:
        with suppress(Exception):
            session.stop()


def _native(module: Any) -> Any:
    """JAX's native profiler, as its module reaches it."""
    holder = _holder(module)
    found = getattr(module, holder)
    return found if holder == _HOLDERS[0] else found.profiler


def _holder(module: Any) -> str:
    return next(name for name in _HOLDERS if hasattr(module, name))


class _Holder:
    """The module through which older versions reach it."""

    def __init__(self, original: Any, profiler: StandIn) -> None:
        self._original = original
        self.profiler = profiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _UnrecordedProfile:
    """A profile of the script that records nothing."""

    def __init__(self, module: Any, say: Callable[[str], None]) -> None:
        self._module = module
        say(SCRIPT_UNRECORDED)

    def stop(self) -> bytes:
        return b""

    def stop_and_export(self, _directory: str) -> None:
        # There is no trace to make one for Perfetto of.
        self._module._profile_state.create_perfetto_trace = False

    def export(self, _profile: bytes, directory: str) -> None:
        self.stop_and_export(directory)
