"""Keras `fit` on a GPU; slow: images are decoded and augmented one by one, by a map without parallel calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import Patches, sized
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FILE_SIDE, SIDE, PATCHES, CLASSES = sized(128, 8), 128, 64, 64, 16
pixels = (
    np.random.default_rng(1).integers(0, 256, [BATCH, FILE_SIDE, FILE_SIDE, 3]).astype(np.uint8)
)
files = [tf.io.encode_jpeg(image).numpy() for image in pixels]
labels = np.arange(BATCH) % CLASSES


def decoded(file: Any, label: Any) -> Any:
    image = tf.image.resize(tf.io.decode_jpeg(file, channels=3), [SIDE + 8, SIDE + 8])
    image = tf.image.random_flip_left_right(tf.image.random_crop(image, [SIDE, SIDE, 3]))
    return tf.saturate_cast(image, tf.uint8), label


def train(is_slow: bool, clock: StepClock) -> None:
    examples = tf.data.Dataset.from_tensor_slices((files, labels))
    if is_slow:
        data = examples.repeat(STEPS).map(decoded).batch(BATCH, drop_remainder=True)
    else:
        data = examples.map(decoded).batch(BATCH, drop_remainder=True).cache().repeat(STEPS)
    model = Patches(2, PATCHES, CLASSES)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data.prefetch(2), epochs=1, verbose=0, callbacks=[ended])
