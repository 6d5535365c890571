"""Says what a capture needs of the framework that a script trains with, and gives it for TensorFlow.

Another framework is another class with the same methods, named in `framework_of`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, ClassVar

from traceview.capture.record.profiler import OneProfile, Profiler
from traceview.capture.sidecar.cluster import StopRiskListener
from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.steps.callee import Recognizer
from traceview.capture.steps.hooks import Hooks, Place
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.placement import PlacementListener
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.steps.step_objects import StepObjects
from traceview.capture.window.step_window import StepWindow


class Framework(ABC):
    """What a capture needs of a framework. One is made for each capture.

    `modules`: whose versions are noted; the first one is the framework itself. `profiler`: the class of its profiler.
    """

    modules: ClassVar[Sequence[str]]
    profiler: ClassVar[type[OneProfile]]

    @abstractmethod
    def watch(
        self, window: StepWindow, names: Iterable[str], places: Sequence[Place] | None
    ) -> tuple[Recognizer, Any]:
        """What recognizes the steps of `window`, and its hooks.

        `names`: of the step functions, by default all that train. `places`: what to hook, by default all that could be a
        step. The hooks have `install`, `remove`, and `missing`, the names of what this version of the framework lacks.
        """

    @abstractmethod
    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """What adds groups to the sidecar. `is_source_wanted`: lines of the script for the ops of graphs, too."""


class TensorFlow(Framework):
    """TensorFlow 2.15 to 2.21, with its Keras, Keras 3 or tf_keras."""

    modules = ("tensorflow", "keras", "tf_keras", "numpy")
    profiler = Profiler

    def __init__(self) -> None:
        self.step_objects = StepObjects()
        self.step_inputs = StepInputs()

    def watch(
        self, window: StepWindow, names: Iterable[str], places: Sequence[Place] | None
    ) -> tuple[Observer, Hooks]:
        """What recognizes the steps of `window`."""
        observer = Observer(window, names, self.step_objects, self.step_inputs)
        return observer, Hooks(observer, places)

    def listeners(
        self, say: Callable[[str], None], *, is_source_wanted: bool
    ) -> Sequence[WindowListener]:
        """Devices, strategy, batch size and graphs."""
        placement = PlacementListener(
            self.step_objects, self.step_inputs, is_source_wanted=is_source_wanted
        )
        return EnvironmentListener(), placement, StopRiskListener(say)


def framework_of(module: str) -> Framework:
    """The framework whose import begins a capture, by the name of its module."""
    if module == "tensorflow":
        return TensorFlow()
    # By name: its room knows this one.
    framework: Framework = import_module("traceview.capture.jax.framework").Jax()
    return framework
