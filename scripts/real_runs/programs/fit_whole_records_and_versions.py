"""Keras `fit` of a model with its own `train_step`; slow twice: all features of a record are parsed, of which the model takes few, and a callback looks up the versions of packages for each line of its log."""

from __future__ import annotations

import io
import json
from importlib import metadata
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, BATCHES, FEATURES, USED, WIDTH, UNITS = 128, 6, 240, 4, 16, 768
PACKAGES = ("keras", "numpy", "h5py", "protobuf", "ml_dtypes", "absl-py", "optree", "rich")

tf.config.threading.set_intra_op_parallelism_threads(1)
SPEC = {f"sensor_{number}": tf.io.FixedLenFeature([WIDTH], tf.float32) for number in range(USED)}
WHOLE_SPEC = SPEC | {
    f"sensor_{number}": tf.io.FixedLenFeature([1], tf.float32) for number in range(USED, FEATURES)
}


def record_of(row: Any) -> bytes:
    values = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=row[: feature.shape[0]]))
        for name, feature in WHOLE_SPEC.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())


records = [record_of(row) for row in numbers(BATCH * BATCHES, WIDTH)]


class Forecaster(tf.keras.Model):  # type: ignore[misc]  # Keras has no types here
    """Guesses the last sensor that is used by the others."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [tf.keras.layers.Dense(UNITS, activation="silu") for _ in range(3)]
        self.last = tf.keras.layers.Dense(WIDTH)

    def call(self, rows: Any) -> Any:
        for layer in self.hidden:
            rows = layer(rows)
        return self.last(rows)

    def train_step(self, data: dict[str, Any]) -> dict[str, Any]:
        seen = [data[f"sensor_{number}"] for number in range(USED)]
        with tf.GradientTape() as tape:
            guess = self(tf.concat(seen[:-1], axis=1), training=True)
            loss = tf.reduce_mean(tf.abs(guess - seen[-1]))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Log(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Writes a line for each batch, and what it was made with."""

    def __init__(self, *, is_slow: bool) -> None:
        super().__init__()
        self.file, self.is_slow = io.StringIO(), is_slow
        self.versions = self.looked_up()

    def looked_up(self) -> dict[str, str]:
        return {name: metadata.version(name) for name in PACKAGES}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        versions = self.looked_up() if self.is_slow else self.versions
        line = {"batch": batch, "loss": float(logs["loss"]), "versions": versions}
        self.file.write(json.dumps(line) + "\n")


def train(is_slow: bool, clock: StepClock) -> None:
    spec = WHOLE_SPEC if is_slow else SPEC
    dataset = tf.data.Dataset.from_tensor_slices(records).batch(BATCH).cache().repeat()
    dataset = dataset.map(lambda batch: tf.io.parse_example(batch, spec))
    model = Forecaster()
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3))
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [Log(is_slow=is_slow), ended]
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
