"""JAX as the framework of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from traceview.capture.jax.environment import JaxEnvironment
from traceview.capture.jax.hooks import JaxHooks
from traceview.capture.jax.profiler import JaxProfiler
from traceview.capture.jax.steps import JaxSteps
from traceview.capture.record.framework import Framework
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.window.step_window import StepWindow


class Jax(Framework):
    """JAX 0.4.30 to 0.11, with flax, optax, or Keras 3."""

    modules = ("jax", "jaxlib", "flax", "optax", "keras", "numpy")
    profiler = JaxProfiler

    def watch(
        self, window: StepWindow, names: Iterable[str], places: object
    ) -> tuple[JaxSteps, JaxHooks]:
        """What recognizes the steps of `window`. There are no other `places`."""
        self._steps = JaxSteps(window, names)
        return self._steps, self._steps.hooks

    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """Devices, mesh and functions. Programs of JAX hold their lines themselves."""
        return JaxEnvironment(self._steps), self._steps.hooks
