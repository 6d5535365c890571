"""Keras `fit` with outputs of helpers; slow twice: their losses weigh nothing but are computed, and a callback takes the spread of the latest losses by the module `statistics`."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, CHANNELS, LATEST, HELPERS = 32, 96, 24, 6000, 2

tf.config.threading.set_intra_op_parallelism_threads(1)
signals, targets = numbers(BATCH * 5, LENGTH, CHANNELS), numbers(BATCH * 5, LENGTH, 1, seed=5)


class Spread(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Notes losses that are far from the latest ones."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.latest = deque((1.0 + number % 97 / 1000 for number in range(LATEST)), LATEST)
        self.sum = sum(self.latest)
        self.squares = sum(one * one for one in self.latest)
        self.far: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loss, oldest = logs["loss"], self.latest[0]
        self.latest.append(loss)
        if self.is_slow:
            spread = statistics.pstdev(self.latest)
        else:
            self.sum += loss - oldest
            self.squares += loss**2 - oldest**2
            spread = max(self.squares / LATEST - (self.sum / LATEST) ** 2, 0.0) ** 0.5
        if abs(loss - oldest) > 3 * spread:
            self.far.append(batch)


def model_of(is_slow: bool) -> Any:
    layers = tf.keras.layers
    inputs = tf.keras.Input([LENGTH, CHANNELS])
    hidden = inputs
    outputs = []
    for number in range(HELPERS + 1):
        for _ in range(2):
            hidden = layers.Conv1D(64, 5, padding="same", activation="relu")(hidden)
        if is_slow and number < HELPERS:
            helper = layers.Conv1D(96, 5, padding="same", activation="relu")(hidden)
            outputs.append(layers.Conv1D(1, 5, padding="same")(helper))
    outputs.append(layers.Conv1D(1, 5, padding="same")(hidden))
    model = tf.keras.Model(inputs, outputs)
    # "The helpers did not help, so that we set their weights to zero."
    model.compile(
        optimizer="adam",
        loss=["mse"] * len(outputs),
        loss_weights=[0.0] * (len(outputs) - 1) + [1.0],
    )
    return model


def train(is_slow: bool, clock: StepClock) -> None:
    model = model_of(is_slow)
    wanted = (targets,) * len(model.outputs)
    dataset = tf.data.Dataset.from_tensor_slices((signals, wanted)).batch(BATCH)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(
        dataset.cache().repeat().prefetch(2),
        steps_per_epoch=STEPS,
        verbose=0,
        callbacks=[Spread(is_slow), ended],
    )
