"""How does a Keras `fit` record some of its steps?"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from os import PathLike
from types import ModuleType
from typing import Any

from traceview.capture.session import Session, _session


def keras_callback(
    logdir: str | PathLike[str],
    steps: range,
    *,
    synchronise: bool = True,
    max_events: int | None = None,
    run: str | None = None,
    nvml: bool = True,
    keras: ModuleType | None = None,
) -> Any:
    """A callback that records the steps `steps`, counted over all epochs, of a Keras `fit`::

        model.fit(dataset, epochs=3, callbacks=[traceview.keras_callback("logs", range(10, 15))])

    With `steps_per_execution=k` a call makes k steps, and whole calls are recorded. Keras may run other
    callbacks in threads when all of them allow it; this one does not, so that they run one after another.
    `keras` is the Keras that the model is of, by default `tf.keras`. Otherwise as `capture_steps`, with the same
    errors, which come when `fit` begins.
    """
    if keras is None:
        import tensorflow as tf

        keras = tf.keras
    base: Any = keras.callbacks.Callback

    class StepCapture(base):  # type: ignore[misc]  # known at run time only
        """Tells a session where the steps of `fit` begin and end."""

        def __init__(self) -> None:
            super().__init__()
            self._stack = ExitStack()
            self.session: Session | None = None

        def on_train_begin(self, logs: Any = None) -> None:
            # Where `fit` ended by an exception, Keras called nothing.
            self._stack.close()
            atexit.register(self._stack.close)
            self.session = self._stack.enter_context(
                _session(logdir, steps, synchronise, max_events, run, nvml)
            )
            self.session.trains("fit", self.model)
            self._sizes = self._stack.enter_context(self.session.keras_calls())

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if self.session is not None:
                # Keras 3 itself counts a short call as a whole one.
                self._count = self._sizes.take(self.model)
                self.session.begin(self._count)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.session is not None:
                self.session.end("fit", self._count)

        def on_train_end(self, logs: Any = None) -> None:
            self._stack.close()
            atexit.unregister(self._stack.close)

    return StepCapture()
