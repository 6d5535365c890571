"""Keras `fit` on a GPU; slow: `tf.print` writes the norm of each column of each gradient to a file, from inside the step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers, squared_error

BATCH, FEATURES, LAYERS = sized(4096, 16), sized(64, 16), sized(10, 2)
rows = numbers(BATCH, FEATURES)


class Watched(tf.keras.Sequential):  # type: ignore[misc]  # TensorFlow has no types here
    """A model that knows how large its gradients are.

    Attributes:
        log: The file that gets the norms of all columns, if any.
    """

    def __init__(self, log: Path | None) -> None:
        hidden = [tf.keras.layers.Dense(WIDTH, activation="tanh") for _ in range(LAYERS)]
        super().__init__([*hidden, tf.keras.layers.Dense(FEATURES)])
        self.log = log

    def train_step(self, batch: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = squared_error(self, batch)
        gradients = tape.gradient(loss, self.trainable_variables)
        norms = [tf.norm(gradient, axis=0) for gradient in gradients[::2]]
        if self.log:
            stream = f"file://{self.log}"
            tf.print("column norms", *norms, summarize=-1, output_stream=stream)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "largest": tf.reduce_max(tf.concat(norms, axis=0))}


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensors(tf.constant(rows)).repeat(STEPS).prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        model = Watched(Path(folder) / "norms.txt" if is_slow else None)
        model.compile(optimizer="sgd", jit_compile=False)
        model.fit(data, epochs=1, verbose=0, callbacks=[ended])
