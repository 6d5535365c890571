"""JAX as the framework of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from traceview.capture.jax.environment import JaxEnvironment
from traceview.capture.jax.hooks import JaxHooks
from traceview.capture.jax.profiler import JaxProfiler, open_marker, synchronise
from traceview.capture.jax.steps import JaxSteps
from traceview.capture.record.profiler import Marker
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.window.step_window import StepWindow


class Jax:
    """JAX 0.4.30 to 0.10, with flax, optax, or Keras 3."""

    modules: Sequence[str] = ("jax", "jaxlib", "flax", "optax", "keras", "numpy")

    def __init__(self) -> None:
        self._steps: JaxSteps | None = None

    def watch(
        self, window: StepWindow, names: Iterable[str], places: object
    ) -> tuple[JaxSteps, JaxHooks]:
        """What recognizes the steps of `window`. There are no other `places`."""
        del places
        self._steps = JaxSteps(window, names)
        return self._steps, self._steps.hooks

    def check(self) -> None:
        """Nothing forbids a profile."""

    def profiler(self, say: Callable[[str], None]) -> JaxProfiler:
        """JAX's profiler."""
        return JaxProfiler(say)

    def marker(self) -> Marker:
        """Open a step marker."""
        return open_marker()

    def synchronise(self) -> None:
        """Wait until the devices are idle."""
        synchronise()

    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """Devices, mesh and functions. Programs of JAX hold their lines themselves."""
        del say, is_source_wanted
        assert self._steps is not None
        return JaxEnvironment(self._steps), self._steps.hooks

    def forget(self) -> None:
        """Nothing of the script is kept."""
