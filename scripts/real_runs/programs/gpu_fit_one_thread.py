"""Keras `fit` on a GPU; slow: the options of the data set leave its parallel map a single thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import Patches, sized
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FILE_SIDE, SIDE, PATCHES, CLASSES = sized(48, 8), 96, 64, 128, 16
pixels = (
    np.random.default_rng(1).integers(0, 256, [BATCH, FILE_SIDE, FILE_SIDE, 3]).astype(np.uint8)
)
labels = np.arange(BATCH) % CLASSES


def augmented(image: Any, label: Any) -> Any:
    image = tf.image.random_crop(tf.cast(image, tf.float32) / 255, [SIDE, SIDE, 3])
    image = tf.image.random_hue(tf.image.random_flip_left_right(image), 0.1)
    image = tf.image.random_contrast(tf.image.random_saturation(image, 0.8, 1.2), 0.8, 1.2)
    return image, label


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensor_slices((pixels, labels)).repeat(STEPS)
    data = data.map(augmented, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(BATCH, drop_remainder=True).prefetch(2)
    if is_slow:
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        data = data.with_options(options)
    model = Patches(4, PATCHES, CLASSES)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, epochs=1, verbose=0, callbacks=[ended])
