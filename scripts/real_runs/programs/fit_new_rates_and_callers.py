"""Keras `fit` with a learning rate that falls; slow twice: the model is compiled again with each new rate, and the log asks the stack who calls it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, UNITS, LAYERS, APART = 192, 512, 1024, 4, 12
"""`APART`: steps between two learning rates."""

tf.config.threading.set_intra_op_parallelism_threads(1)
rows, targets = numbers(BATCH * 4, FEATURES), numbers(BATCH * 4, 1, seed=2)
METRICS = ["mae", "mape", "msle", "mse", "cosine_similarity"]
lines: list[str] = []


def note_of_stack(text: str) -> None:
    """Add a line to the log that begins with the function that says it."""
    caller = inspect.stack()[1]
    lines.append(f"{caller.function}:{caller.lineno} {text}")


def note_of_frame(text: str) -> None:
    """Add such a line."""
    caller = sys._getframe(1)
    lines.append(f"{caller.f_code.co_name}:{caller.f_lineno} {text}")


class LossLog(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Logs the loss and the metrics of each batch, each in a line, and the best so far."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.note = note_of_stack if is_slow else note_of_frame
        self.best: dict[str, float] = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for name, value in logs.items():
            self.note(f"{batch} {name} {value:.4f}")
            self.best[name] = min(value, self.best.get(name, value))
            self.note(f"{batch} best {name} {self.best[name]:.4f}")


class FallingRate(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Sets the learning rate of the model that trains."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch % APART == 0:
            self.model.optimizer.learning_rate = rate_at(batch)


def rate_at(step: int) -> float:
    return float(1e-3 * 0.5 ** (step // APART))


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((rows, targets)).batch(BATCH).cache().repeat()
    dataset = dataset.prefetch(2)
    layers = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.Input([FEATURES]), *layers, tf.keras.layers.Dense(1)])
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [LossLog(is_slow), ended]
    if not is_slow:
        model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse", metrics=METRICS)
        callbacks.insert(0, FallingRate())
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
        return
    for step in range(0, STEPS, APART):
        model.compile(optimizer=tf.keras.optimizers.SGD(rate_at(step)), loss="mse", metrics=METRICS)
        model.fit(dataset, steps_per_epoch=APART, verbose=0, callbacks=callbacks)
