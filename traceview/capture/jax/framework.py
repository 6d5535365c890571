"""JAX as the framework of a capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.capture.jax.environment import JaxEnvironment
from traceview.capture.jax.profiler import JaxProfiler
from traceview.capture.jax.steps import JaxSteps
from traceview.capture.record.framework import Framework, Say, Watched
from traceview.capture.record.settings import Settings
from traceview.capture.steps.hooks import Place
from traceview.capture.window.step_window import StepWindow


def _watch(
    window: StepWindow, settings: Settings, places: Sequence[Place] | None, _say: Say
) -> Watched:
    """What sees the steps, and describes devices, mesh and functions. Programs of JAX hold their lines.

    Where `places` are given, the program itself says which its steps are.
    """
    steps = JaxSteps(window, settings.step_functions, are_marked=places is not None)
    return Watched(steps, steps.hooks, (JaxEnvironment(steps), steps.hooks))


JAX: Final = Framework(("jax", "jaxlib", "flax", "optax", "keras", "numpy"), JaxProfiler, _watch)
"""0.4.30 to 0.11, with flax, optax, or Keras 3."""
