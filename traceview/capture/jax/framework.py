"""JAX as the framework of a capture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceview.capture.jax.environment import JaxEnvironment
from traceview.capture.jax.profiler import JaxProfiler
from traceview.capture.jax.steps import JaxSteps
from traceview.capture.record.framework import Watched
from traceview.capture.record.profiler import OneProfile
from traceview.capture.window.step_window import StepWindow


class Jax:
    """JAX 0.4.30 to 0.11, with flax, optax, or Keras 3."""

    modules: Sequence[str] = ("jax", "jaxlib", "flax", "optax", "keras", "numpy")
    profiler: type[OneProfile] = JaxProfiler

    def watch(self, window: StepWindow, names: Iterable[str], *_: object, **__: object) -> Watched:
        """What sees the steps of `window`, and describes devices, mesh and functions. Programs of JAX hold their lines."""
        steps = JaxSteps(window, names)
        return Watched(steps, steps.hooks, (JaxEnvironment(steps), steps.hooks))
