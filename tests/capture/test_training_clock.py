"""A capture that sees no step says so once, while the run can still be changed."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import pytest

from traceview.capture.record.outcome import no_step_watch
from traceview.capture.steps.observer import Observer
from traceview.capture.window.step_window import StepRange, StepWindow

NO_STEP = 0.2


class Scene:
    def __init__(self) -> None:
        self.said: list[str] = []
        nobody_records: Any = None
        self.window = StepWindow(StepRange(10, 15), nobody_records)
        self.observer = Observer(self.window, ())
        self.clock = no_step_watch(self.window, self.observer, self.said.append, NO_STEP)

    def function(self) -> None:
        """A call that trains nothing."""

    def call(self, action: Callable[[], None] | None = None) -> None:
        callee = self.observer.replica_function(self.function)
        call = self.observer.begin(callee, 1)
        (action or self.function)()
        self.observer.end(call, None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_calls_without_a_step_are_named_once(scene: Scene) -> None:
    scene.clock.start()
    until = monotonic() + 4 * NO_STEP
    while monotonic() < until:
        scene.call()
        sleep(0.01)
    scene.clock.stop()
    first, hint = scene.said
    assert first.startswith(
        f"note: after {NO_STEP} s of training, no step is recognized. Called: function (strategy"
    )
    assert hint.startswith(
        "hint: if function is the step: --step-function function; otherwise mark"
    )


def test_a_step_silences_it(scene: Scene) -> None:
    scene.clock.start()
    scene.call()
    scene.window.begin()
    scene.window.end("train_step")
    sleep(2 * NO_STEP)
    scene.clock.stop()
    assert scene.said == []


def test_a_first_call_may_compile_for_a_while_but_not_for_ever(scene: Scene) -> None:
    said_in_call: list[int] = []

    def slow() -> None:
        for _ in range(9):
            sleep(NO_STEP)
            said_in_call.append(len(scene.said))

    scene.clock.start()
    scene.call(slow)
    scene.clock.stop()
    assert said_in_call[2] == 0
    assert said_in_call[-1] == 2
