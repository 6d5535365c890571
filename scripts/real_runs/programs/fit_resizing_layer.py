"""Keras `fit` on two replicas of small pictures of large photographs; slow: layers of the model make them small in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, PHOTO, SIZE, CLASSES = 32, 224, 40, 8

strategy = mirrored(2)
rng = np.random.default_rng(13)
photos = rng.integers(0, 256, [BATCH * 4, PHOTO, PHOTO, 3], np.uint8)
labels = rng.integers(0, CLASSES, [BATCH * 4])


def smaller() -> list[Any]:
    """The layers before the first one that learns."""
    scaled = tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0)
    return [scaled, tf.keras.layers.Resizing(SIZE, SIZE, antialias=True)]


def dataset_of(is_slow: bool) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((photos, labels))
    dataset = dataset.batch(BATCH, drop_remainder=True)
    if not is_slow:
        layers = smaller()
        dataset = dataset.map(lambda images, targets: (layers[1](layers[0](images)), targets))
    return dataset.cache().repeat().prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = dataset_of(is_slow)
    with strategy.scope():
        layers: list[Any] = smaller() if is_slow else []
        for channels in (16, 32):
            layers.append(tf.keras.layers.SeparableConv2D(channels, 3, padding="same"))
            layers += [tf.keras.layers.ReLU(), tf.keras.layers.MaxPooling2D()]
        layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(CLASSES)]
        model = tf.keras.Sequential(layers)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss=loss, metrics=["accuracy"])
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
