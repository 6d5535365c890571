from __future__ import annotations

import gc
from typing import Any

from traceview.capture.steps.step_objects import StepObjects


class Function:
    """A `tf.function` that was traced, or was not."""

    def __init__(self, *traces: Any) -> None:
        self._function_cache = dict(enumerate(traces))

    def __call__(self) -> None: ...


class Model:
    """A Keras model."""

    def __init__(self, step: Function | None) -> None:
        self.train_function = None if step is None else lambda: step


def test_functions_that_were_traced_each_once() -> None:
    steps, traced, other, untraced = StepObjects(), Function("graph"), Function("graph"), Function()
    for thing in (traced, other, untraced, traced, print):
        steps.add("step", thing)
    assert steps.functions("step") == [traced, other]
    assert steps.functions("unknown") == []


def test_the_function_in_the_training_of_a_model() -> None:
    steps, step = StepObjects(), Function("graph")
    model, idle = Model(step), Model(None)
    steps.add("net", model)
    steps.add("idle", idle)
    assert steps.functions("net") == [step]
    assert steps.functions("idle") == []
    assert steps.models() == [model]


def test_nothing_is_kept_alive() -> None:
    steps, step = StepObjects(), Function("graph")
    steps.add("step", step)
    steps.add("slots", 5)  # cannot be referred to weakly
    del step
    gc.collect()
    assert steps.functions("step") == []
    assert steps.functions("slots") == []
