"""Keras `fit` on a GPU; slow twice: a callback words a report in Python, and the model normalizes group by group."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, INPUTS, FEATURES, GROUPS = sized(8192, 16), 64, sized(2048, 64), sized(32, 8)
rows = numbers(BATCH, INPUTS)
names = [f"class {number * 7919 % 10_007}" for number in range(20_000)]


class Report(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types here
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loss = float(logs["loss"])
        self.lines = [f"{name.title():>12}: {loss * len(name):.3f}" for name in names]


def normalized(groups: Any) -> Any:
    mean = tf.reduce_mean(groups, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(groups - mean), axis=-1, keepdims=True)
    return (groups - mean) * tf.math.rsqrt(variance + 1e-6)


class Grouped(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    def __init__(self, is_by_group: bool) -> None:
        super().__init__()
        self.is_by_group = is_by_group
        hidden = [tf.keras.layers.Dense(FEATURES, "tanh") for _ in range(9)]
        self.parts = [*hidden, tf.keras.layers.Dense(INPUTS, "tanh")]

    def call(self, batch: Any) -> Any:
        first, *others = self.parts
        outputs = first(batch)
        if self.is_by_group:
            groups = [normalized(group) for group in tf.split(outputs, GROUPS, axis=-1)]
            outputs = tf.concat(groups, axis=-1)
        else:
            groups = tf.reshape(outputs, [-1, GROUPS, FEATURES // GROUPS])
            outputs = tf.reshape(normalized(groups), [-1, FEATURES])
        for part in others:
            outputs = part(outputs)
        return outputs


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensors(tf.constant(rows)).repeat(STEPS)
    data = data.map(lambda batch: (batch, batch)).prefetch(2)
    model = Grouped(is_slow)
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, epochs=1, verbose=0, callbacks=[*([Report()] if is_slow else []), ended])
