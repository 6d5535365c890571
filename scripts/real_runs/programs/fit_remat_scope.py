"""Keras `fit` of a convolutional network on two replicas with much memory; slow: its layers were made within `keras.RematScope`,
so that each computes its output again for its gradient.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, CLASSES = 24, 32, 10

strategy = mirrored(2)
pictures = numbers(BATCH * 6, SIDE, SIDE, 3)
labels = abs(numbers(BATCH * 6, seed=3) * 1e4).astype("int32") % CLASSES


def network(is_slow: bool) -> Any:
    """A few convolutions, each as wide as the last one."""
    inputs = keras.Input([SIDE, SIDE, 3])
    with keras.RematScope(mode="full") if is_slow else nullcontext():
        hidden = keras.layers.Conv2D(32, 3, strides=2, padding="same", activation="gelu")(inputs)
        for _ in range(6):
            more = keras.layers.Conv2D(32, 3, padding="same", activation="gelu")(hidden)
            hidden = keras.layers.Add()([hidden, more])
        hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((pictures, labels))
    dataset = dataset.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(4)
    with strategy.scope():
        model = network(is_slow)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss=loss)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
