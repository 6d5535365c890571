"""Keras `fit` on two devices; slow: the `TensorBoard` callback writes after each batch, with an own scalar per layer."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, LAYERS = 128, 256, 6

strategy = mirrored(2)
rows = numbers(BATCH * 8, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset: Any = tf.data.Dataset.from_tensor_slices((rows, rows)).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(2)
    with strategy.scope():
        hidden = [tf.keras.layers.Dense(512, activation="relu") for _ in range(LAYERS)]
        model = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(FEATURES)])
        model.compile(optimizer="sgd", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with tempfile.TemporaryDirectory() as folder:
        writer = tf.summary.create_file_writer(folder)

        def write_norms(batch: int, logs: object) -> None:
            with writer.as_default(step=batch):
                for index, layer in enumerate(model.layers):
                    tf.summary.scalar(f"norm/{index}", tf.norm(layer.kernel))
                    tf.summary.histogram(f"weights/{index}", layer.kernel)

        watching = [
            tf.keras.callbacks.TensorBoard(folder, update_freq=1, profile_batch=0),
            tf.keras.callbacks.LambdaCallback(on_train_batch_end=write_norms),
        ]
        callbacks = [*watching, ended] if is_slow else [ended]
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
