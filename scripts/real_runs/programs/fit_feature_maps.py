"""Keras `fit` of pictures on one device; slow: a callback makes a new model of the layers to look at for every sixth batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, EVERY = 80, 64, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
labels = (numbers(BATCH * 4, seed=2) > 0).astype("int32")
examples = pictures[:2]


class FeatureMaps(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps how strongly each channel answers to some example pictures."""

    def __init__(self, is_made_anew: bool) -> None:
        super().__init__()
        self.is_made_anew = is_made_anew
        self.strengths: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.probe = self.convolutions()
        self.probe.predict_on_batch(examples)

    def convolutions(self) -> Any:
        outputs = [layer.output for layer in self.model.layers if "conv" in layer.name]
        return tf.keras.Model(self.model.inputs, outputs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % EVERY != EVERY - 1:
            return
        if self.is_made_anew:
            maps = self.convolutions().predict(examples, verbose=0)
        else:
            maps = self.probe.predict_on_batch(examples)
        self.strengths.append([values.mean(axis=(0, 1, 2)) for values in maps])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((pictures, labels)).batch(BATCH).cache()
    model = tf.keras.Sequential([tf.keras.Input([SIDE, SIDE, 3])])
    for channels in (32, 32, 64):
        model.add(tf.keras.layers.Conv2D(channels, 3, activation="relu"))
        model.add(tf.keras.layers.MaxPooling2D())
    model.add(tf.keras.layers.Flatten())
    model.add(tf.keras.layers.Dense(2, activation="softmax"))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="sparse_categorical_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [FeatureMaps(is_slow), ended]
    data = dataset.repeat().prefetch(2)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
