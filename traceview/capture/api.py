"""Captures steps from inside a training loop: `capture_steps`, and `keras_callback` for Keras `fit`."""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from threading import Lock, get_ident
from types import ModuleType
from typing import Any

from traceview.capture.process.python_code import CodePlaces, callers
from traceview.capture.record.capture import Capture, framework_in_use
from traceview.capture.record.destination import output_folder
from traceview.capture.record.outcome import End, shortcomings
from traceview.capture.record.settings import Settings
from traceview.capture.steps.hooks import INPUT_PLACES, Place
from traceview.capture.steps.observer import name_of_model
from traceview.capture.window.step_window import StepRange


class CaptureWarning(UserWarning):
    """A capture in a training loop recorded less than requested, or nothing."""


class Session:
    """A capture inside a training loop; see `capture_steps`."""

    def __init__(self, watch: Capture) -> None:
        self._watch = watch

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self._watch.run

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Step `number` of the loop. Fetch the batch inside, so that the wait for input belongs to the step."""
        window = self._watch.window
        window.next_number = number
        window.begin()
        try:
            yield
        except BaseException as error:
            window.fail("step", error)
            raise
        window.end("step")


@contextmanager
def capture_steps(
    logdir: str | PathLike[str],
    steps: range,
    *,
    run: str | None = None,
    nvml: bool = True,
    python: bool = True,
    source: bool = True,
) -> Iterator[Session]:
    """Record the steps `steps`, such as `range(10, 15)`, of a training loop into a new run below `logdir`::

        with traceview.capture_steps("logs", range(10, 15)) as session:
            for number in range(100):
                with session.step(number):
                    train_step(next(iterator))

    `nvml` samples clocks, power and load of the GPUs in the window, `python` the Python stacks of the threads; `source` keeps
    the line that made each op. `session.run` is the folder of the trace, None if nothing was recorded. A capture that records
    less than requested is a `CaptureWarning`. `run` names the run; by default the workers of the cluster in TF_CONFIG share one.

    Raises `UsageError` for a range that is empty or holds step 0, or a run name that cannot name a folder;
    `CaptureError` if `logdir` cannot be written or the run has this trace already.
    """
    settings = _settings(logdir, steps, run, nvml=nvml, python=python, source=source)
    with _watched(settings, INPUT_PLACES, _warner()) as watch:
        yield Session(watch)


def keras_callback(
    logdir: str | PathLike[str],
    steps: range,
    *,
    run: str | None = None,
    nvml: bool = True,
    python: bool = True,
    source: bool = True,
    keras: ModuleType | None = None,
) -> Any:
    """Make a callback that records the steps `steps`, counted over all epochs, of a Keras `fit`::

        model.fit(dataset, epochs=3, callbacks=[traceview.keras_callback("logs", range(10, 15))])

    `keras` is the Keras of the model, by default `tf.keras`, or `keras` where JAX is imported and TensorFlow is not. The other arguments and the errors are those of
    `capture_steps`; `CaptureError` comes when `fit` begins.
    """
    settings = _settings(logdir, steps, run, nvml=nvml, python=python, source=source)
    if keras is None:
        is_jax = framework_in_use() == "jax"
        keras = import_module("keras") if is_jax else import_module("tensorflow").keras
    return type("StepCapture", (_StepCapture, keras.callbacks.Callback), {})(settings, _warner())


class _StepCapture:
    """Captures the steps of `fit` from its beginning to its end; a class derived from it and a Keras callback is one."""

    model: Any

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        super().__init__()
        self.session: Session | None = None
        self._settings = settings
        self._say = say
        self._stack = ExitStack()
        self._lock = Lock()

    def on_train_begin(self, logs: Any = None) -> None:
        atexit.register(self._close)
        settings, is_tensorflow = self._settings, framework_in_use() == "tensorflow"
        if is_tensorflow:
            # Other functions that compute gradients are none of its steps.
            settings = replace(settings, step_functions=(name_of_model(self.model),))
        watch = self._stack.enter_context(_watched(settings, None, self._say))
        if is_tensorflow:
            watch.hooks.observe(self.model)
        self.session = Session(watch)
        thread, frames = get_ident(), callers(sys._getframe())
        fit = next((frame for frame in frames if frame.f_code.co_name == "fit"), None)

        def look() -> None:
            """Close the window where `fit` has ended by an exception: Keras calls nothing then."""
            if fit is not None and fit not in callers(sys._current_frames().get(thread)):
                self._close()

        watch.window.on_look = look

    def on_train_end(self, logs: Any = None) -> None:
        self._close()
        atexit.unregister(self._close)

    def _close(self) -> None:
        with self._lock:
            self._stack.close()


def _settings(
    logdir: str | PathLike[str], steps: range, run: str | None, **parts: bool
) -> Settings:
    without = frozenset(part for part, is_wanted in parts.items() if not is_wanted)
    return Settings(output_folder(logdir), StepRange.of(steps), run, without)


@contextmanager
def _watched(
    settings: Settings, places: Sequence[Place] | None, say: Callable[[str], None]
) -> Iterator[Capture]:
    """Capture the steps that the body reports, or those of what is hooked at `places`."""
    watch = Capture(settings, say, places=places)
    watch.prepare()
    end: End = "failed"
    try:
        watch.hooks.install()
        yield watch
        end = "ended"
    finally:
        watch.finish(end)
        window = watch.window
        none = f"the last step of the loop was {window.next_number - 1}, and none was in the window {window.steps}"
        nothing = f"nothing was captured: {'; '.join(window.failures) or none}"
        lacks = shortcomings(window, watch.sidecar, watch.observer)
        for line in (nothing,) if watch.run is None else lacks:
            say(line)


def _warner() -> Callable[[str], None]:
    """What warns at the line of the user's code that makes the capture."""
    places = CodePlaces()
    lines = ((frame.f_code.co_filename, frame.f_lineno) for frame in callers(sys._getframe(1)))
    line = next((line for line in lines if places.is_user(line[0])), ("traceview", 1))
    return lambda text: warnings.warn_explicit(text.removeprefix("note: "), CaptureWarning, *line)
