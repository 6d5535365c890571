"""Keras `fit` of a network that labels pixels; slow: the scores are enlarged by a transposed convolution that is not trained, which
joins all classes with all, though its filters hold each class apart; healthy: by `UpSampling2D`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

SIDE, CLASSES, FACTOR, BATCH = 80, 40, 8, 6

rows = numbers(BATCH * 4, SIDE, SIDE, 3)
labels = np.random.default_rng(2).integers(0, CLASSES, [BATCH * 4, SIDE, SIDE])


def bilinear(shape: Any, dtype: Any = None) -> Any:
    """Filters that enlarge each class by itself."""
    size, _, classes, _ = shape
    ramp = 1 - np.abs(np.arange(size) - FACTOR + 0.5) / FACTOR
    filters = np.zeros(shape)
    filters[:, :, range(classes), range(classes)] = np.outer(ramp, ramp)[:, :, None]
    return tf.constant(filters, dtype)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    narrow = [
        layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")
        for width in (16, 32, 64)
    ]
    enlarge = (
        layers.Conv2DTranspose(
            *(CLASSES, 2 * FACTOR, FACTOR, "same"),
            use_bias=False,
            kernel_initializer=bilinear,
            trainable=False,
        )
        if is_slow
        else layers.UpSampling2D(FACTOR, interpolation="bilinear")
    )
    model = tf.keras.Sequential([*narrow, layers.Conv2D(CLASSES, 1), enlarge])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(BATCH).prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
