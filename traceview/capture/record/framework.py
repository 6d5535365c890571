"""Says what a capture needs of the framework that a script trains with, and gives it for TensorFlow.

Another framework is another class with the same members, named in `framework_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from traceview.capture.record.profiler import OneProfile, Profiler
from traceview.capture.sidecar.cluster import StopRiskListener
from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.steps.callee import Recognizer
from traceview.capture.steps.hooks import Hooks, Place
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.placement import PlacementListener
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.window.step_window import StepWindow


class Watched(NamedTuple):
    """What sees the steps of one window.

    `hooks`: with `install`, `remove`, and `missing`, the names of what this version of the framework lacks. `listeners`: what adds
    groups to the sidecar.
    """

    observer: Recognizer
    hooks: Any
    listeners: Sequence[WindowListener]


class Framework(Protocol):
    """What a capture needs of a framework.

    `modules`: whose versions are noted; the first one is the framework itself. `profiler`: the class of its profiler.
    """

    modules: Sequence[str]
    profiler: type[OneProfile]

    def watch(
        self,
        window: StepWindow,
        names: Iterable[str],
        places: Sequence[Place] | None,
        say: Callable[[str], None],
        *,
        is_source_wanted: bool,
    ) -> Watched:
        """What sees the steps of `window`.

        `names`: of the step functions, by default all that train. `places`: what to hook, by default all that could be a
        step. `is_source_wanted`: lines of the script for the ops of graphs, too.
        """


class TensorFlow:
    """TensorFlow 2.15 to 2.21, with its Keras, Keras 3 or tf_keras."""

    modules: Sequence[str] = ("tensorflow", "keras", "tf_keras", "numpy")
    profiler: type[OneProfile] = Profiler

    def watch(
        self,
        window: StepWindow,
        names: Iterable[str],
        places: Sequence[Place] | None,
        say: Callable[[str], None],
        *,
        is_source_wanted: bool,
    ) -> Watched:
        """What sees the steps of `window`, and describes devices, strategy, batch size and graphs."""
        inputs = StepInputs()
        observer = Observer(window, names, inputs)
        placement = PlacementListener(observer, inputs, is_source_wanted=is_source_wanted)
        listeners = EnvironmentListener(), placement, StopRiskListener(say)
        return Watched(observer, Hooks(observer, places), listeners)


def framework_of(module: str) -> Framework:
    """The framework whose import begins a capture, by the name of its module."""
    if module == "tensorflow":
        return TensorFlow()
    # By name: its room knows this one.
    framework: Framework = import_module("traceview.capture.jax.framework").Jax()
    return framework
