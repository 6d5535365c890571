"""Starts and stops JAX's profiler, which the script may be using too.

The session is made here and not with `jax.profiler.start_trace`, whose Python tracer, on by default, makes steps several
times as long. One profile can run per process: while ours does, one that the script starts is accepted but not recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from traceview.capture.record.profiler import MARKER, Marker, OneProfile, StandIn


class JaxProfiler(OneProfile):
    """JAX's profiler."""

    module = "jax._src.profiler"

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._directory = ""

    def marker(self) -> Marker:
        """Open a step marker."""
        annotation = self._native(import_module(self.module)).TraceMe(MARKER)
        annotation.__enter__()
        return Marker(annotation)

    def _await_devices(self) -> None:
        """Wait for every array that is alive, and every effect such as a callback."""
        jax = sys.modules["jax"]
        jax.effects_barrier()
        for array in jax.live_arrays():
            # A donated one may be deleted meanwhile.
            if not array.is_deleted():
                array.block_until_ready()

    def _is_profiling(self, module: Any) -> bool:
        return module._profile_state.profile_session is not None

    def _native(self, module: Any) -> Any:
        return module._profiler if hasattr(module, "_profiler") else module.xla_client.profiler

    def _begin(self, native: Any, directory: str) -> Any:
        options = native.ProfileOptions()
        # That of the devices is on in all versions, and some have no option for it.
        options.host_tracer_level, options.python_tracer_level = 2, 0
        self._directory = directory
        return native.ProfilerSession(options)

    def _replace(self, module: Any, stand_in: StandIn) -> None:
        if hasattr(module, "_profiler"):
            self._patches.put(module, "_profiler", stand_in)
        else:
            self._patches.put(module, "xla_client", _Holder(module.xla_client, stand_in))

    def _export(self, session: Any) -> None:
        if hasattr(session, "stop_and_export"):
            session.stop_and_export(self._directory)
        else:
            session.export(session.stop(), self._directory)

    def _drop(self, session: Any) -> None:
        with suppress(Exception):
            session.stop()


class _Holder:
    """The module through which JAX before 0.8 reaches the native profiler."""

    def __init__(self, original: Any, profiler: StandIn) -> None:
        self._original = original
        self.profiler = profiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
