"""Says what a capture needs of the framework that a script trains with, and gives it for TensorFlow.

Another framework is another class with the same methods, named in `framework_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from traceview.capture.record.profiler import (
    Marker,
    OneProfile,
    Profiler,
    check_enabled,
    open_marker,
    synchronise,
)
from traceview.capture.sidecar.cluster import StopRiskListener
from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.steps.hooks import Hooks, Place
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.placement import PlacementListener
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.steps.step_objects import StepObjects
from traceview.capture.window.step_window import OpenMarker, StepWindow


class Watching(Protocol):
    """The hooks through which steps are seen. Each step begins and ends by methods of the `StepWindow`."""

    missing: list[str]
    """Names of what this version of the framework lacks."""

    def install(self) -> None:
        """Begin to watch."""

    def remove(self) -> None:
        """Leave everything as it was."""


class Framework(Protocol):
    """What a capture needs of a framework. One is made for each capture."""

    modules: Sequence[str]
    """Whose versions are noted; the first one is the framework itself."""

    def watch(
        self, window: StepWindow, names: Iterable[str], places: Sequence[Place] | None
    ) -> tuple[Any, Watching]:
        """What recognizes the steps of `window`, an `Observer` or what answers the same, and its hooks.

        `names`: of the step functions, by default all that train.

        `places`: what to hook, by default all that could be a step.
        """

    def check(self) -> None:
        """Raise `CaptureError` if no profile is possible."""

    def profiler(self, say: Callable[[str], None]) -> OneProfile:
        """Its profiler. `say` gets lines about profiles of the script."""

    def marker(self) -> OpenMarker:
        """Open a step marker now."""

    def synchronise(self) -> None:
        """Wait until the devices are idle; raises `CaptureError`."""

    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """What adds groups to the sidecar. `is_source_wanted`: lines of the script for the ops of graphs, too."""

    def forget(self) -> None:
        """The capture has ended: let go of what the steps were given."""


class TensorFlow:
    """TensorFlow 2.15 to 2.21, with its Keras, Keras 3 or tf_keras."""

    modules: Sequence[str] = ("tensorflow", "keras", "tf_keras", "numpy")

    def __init__(self) -> None:
        self.step_objects = StepObjects()
        self.step_inputs = StepInputs()

    def watch(
        self, window: StepWindow, names: Iterable[str], places: Sequence[Place] | None
    ) -> tuple[Observer, Hooks]:
        """What recognizes the steps of `window`."""
        observer = Observer(window, names, self.step_objects, self.step_inputs)
        return observer, Hooks(observer, places)

    def check(self) -> None:
        """Raise `CaptureError` if the environment forbids profiles."""
        check_enabled()

    def profiler(self, say: Callable[[str], None]) -> Profiler:
        """TensorFlow's profiler."""
        return Profiler(say)

    def marker(self) -> Marker:
        """Open a step marker."""
        return open_marker()

    def synchronise(self) -> None:
        """Wait until the devices are idle."""
        synchronise()

    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """Devices, strategy, batch size and graphs."""
        placement = PlacementListener(
            self.step_objects, self.step_inputs, is_source_wanted=is_source_wanted
        )
        return EnvironmentListener(), placement, StopRiskListener(say)

    def forget(self) -> None:
        """Let go of datasets."""
        self.step_inputs.forget()


def _jax() -> Framework:
    # By name: its room knows this one.
    framework: Framework = import_module("traceview.capture.jax.framework").Jax()
    return framework


_FRAMEWORKS: Final[dict[str, Callable[[], Framework]]] = {"tensorflow": TensorFlow, "jax": _jax}


def framework_of(module: str) -> Framework:
    """The framework whose import begins a capture, by the name of its module."""
    return _FRAMEWORKS[module]()
