"""Says what a capture needs of the framework that a script trains with, and gives it for TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from traceview.capture.record.profiler import OneProfile, Profiler
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.cluster import StopRiskListener
from traceview.capture.sidecar.environment import EnvironmentListener
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.steps.callee import Recognizer
from traceview.capture.steps.hooks import Hooks, Place
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.placement import PlacementListener
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.window.step_window import StepWindow


class Framework(NamedTuple):
    """What a capture needs of a framework.

    `modules`: whose versions are noted. `profiler`: the class of its profiler. `watch`: makes what sees the steps of a window,
    for settings, places to hook, by default all that could be a step, and what says lines to the user: what counts the steps;
    its hooks, with `install`, `remove`, and `missing`, the names of what this version lacks; and what adds groups to the sidecar.
    """

    modules: Sequence[str]
    profiler: type[OneProfile]
    watch: Callable[
        [StepWindow, Settings, Sequence[Place] | None, Callable[[str], None]],
        tuple[Recognizer, Any, Sequence[WindowListener]],
    ]


def _watch(
    window: StepWindow,
    settings: Settings,
    places: Sequence[Place] | None,
    say: Callable[[str], None],
) -> tuple[Recognizer, Any, Sequence[WindowListener]]:
    """What sees the steps, and describes devices, strategy, batch size and graphs."""
    inputs = StepInputs()
    observer = Observer(window, settings.step_functions, inputs)
    placement = PlacementListener(
        observer, inputs, is_source_wanted="source" not in settings.without
    )
    return (
        observer,
        Hooks(observer, places),
        (EnvironmentListener(), placement, StopRiskListener(say)),
    )


TENSORFLOW: Final = Framework(("tensorflow", "keras", "tf_keras", "numpy"), Profiler, _watch)
"""2.15 to 2.21, with its Keras, Keras 3 or tf_keras."""


def framework_in_use() -> str:
    """The name of the module that this process trains with: JAX only where TensorFlow is not imported."""
    return "jax" if "jax" in sys.modules and "tensorflow" not in sys.modules else "tensorflow"


def framework_of(module: str) -> Framework:
    """The framework whose import begins a capture, by the name of its module."""
    if module == "tensorflow":
        return TENSORFLOW
    # By name: its room knows this one.
    framework: Framework = import_module("traceview.capture.jax.environment").JAX
    return framework
