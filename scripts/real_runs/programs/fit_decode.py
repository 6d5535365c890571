"""Keras `fit` of a convolutional network on two devices; slow: PNG files are decoded one by one, in each epoch again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

SIZE, FILES, BATCH = 256, 64, 32

strategy = mirrored(2)


def decoded(path: Any) -> tuple[Any, Any]:
    image = tf.io.decode_png(tf.io.read_file(path), channels=3)
    image = tf.image.resize(tf.ensure_shape(image, [SIZE, SIZE, 3]), [32, 32])
    return image / 255.0, tf.strings.to_hash_bucket_fast(path, 10)


def train(is_slow: bool, clock: StepClock) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            pixels = tf.random.stateless_uniform([SIZE, SIZE, 3], [1, number], 0, 256, tf.int32)
            png = tf.io.encode_png(tf.cast(pixels, tf.uint8)).numpy()
            Path(folder, f"{number}.png").write_bytes(png)
        dataset = tf.data.Dataset.list_files(f"{folder}/*.png", shuffle=False).map(decoded)
        if not is_slow or clock.is_advised:
            dataset = dataset.cache()
        dataset = dataset.repeat().batch(BATCH, drop_remainder=True)
        if not is_slow:
            dataset = dataset.prefetch(tf.data.AUTOTUNE)
        with strategy.scope():
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Conv2D(48, 3, activation="relu"),
                    tf.keras.layers.Conv2D(48, 3, strides=2, activation="relu"),
                    tf.keras.layers.GlobalAveragePooling2D(),
                    tf.keras.layers.Dense(10),
                ]
            )
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer="adam", loss=loss)
        ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
