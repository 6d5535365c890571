"""Keras fine-tunes a head on two devices; slow: the frozen layers below it run on the same photographs in every epoch, not once before."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, KINDS, BATCHES = 64, 64, 20, 4

strategy = mirrored(2)
photographs = numbers(BATCH * BATCHES, SIDE, SIDE, 3)
kinds = (numbers(BATCH * BATCHES, seed=2) > 0).astype("int32")


def backbone() -> Any:
    """Layers that were trained elsewhere."""
    model = tf.keras.Sequential([tf.keras.Input([SIDE, SIDE, 3])])
    for channels in (16, 32, 64, 64):
        model.add(tf.keras.layers.Conv2D(channels, 3, padding="same", activation="relu"))
        model.add(tf.keras.layers.MaxPooling2D())
    model.trainable = False
    return model


def head() -> Any:
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in (1024, 512)]
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.3),
            *layers,
            tf.keras.layers.Dense(KINDS, activation="softmax"),
        ]
    )


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((photographs, kinds))
    dataset = dataset.batch(BATCH, drop_remainder=True)
    with strategy.scope():
        frozen, model = backbone(), head()
        if is_slow:
            model = tf.keras.Sequential([frozen, model])
        optimizer = tf.keras.optimizers.SGD(1e-3, momentum=0.9)
        model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    if not is_slow:
        rows = [(frozen(batch, training=False), labels) for batch, labels in dataset]
        features, labels = (tf.concat(part, axis=0) for part in zip(*rows, strict=True))
        dataset = tf.data.Dataset.from_tensor_slices((features, labels))
        dataset = dataset.batch(BATCH, drop_remainder=True)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = dataset.cache().repeat().prefetch(2)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
