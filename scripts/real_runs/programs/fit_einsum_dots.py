"""Keras `fit`, whose layer is an einsum; slow: its batch dimensions are dots, and the gradient of its matrix is made for each of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, TIMES, FEATURES, UNITS = 16, 40, 96, 48

tf.config.threading.set_intra_op_parallelism_threads(1)
series, targets = numbers(512, TIMES, FEATURES), numbers(512, 8, seed=2)


class Projected(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types here
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], UNITS))

    def call(self, rows: Any) -> Any:
        return tf.nn.gelu(tf.einsum(self.equation, rows, self.kernel))


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Conv1D(192, 5, padding="same", activation="relu") for _ in range(2)]
    model = tf.keras.Sequential(
        [
            *layers,
            tf.keras.layers.Dense(FEATURES),
            Projected("...i,io->...o" if is_slow else "bti,io->bto"),
            tf.keras.layers.GlobalAveragePooling1D(),
            tf.keras.layers.Dense(8),
        ]
    )
    model.compile(optimizer="adam", loss="mse")
    data = tf.data.Dataset.from_tensor_slices((series, targets)).batch(BATCH, drop_remainder=True)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = data.cache().repeat().prefetch(2)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
