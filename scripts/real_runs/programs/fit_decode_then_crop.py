"""Keras `fit` on small crops of photographs; slow: each photograph is decoded as a whole and cropped then, not decoded in the crop alone."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, HEIGHT, WIDTH, CROP, KINDS, PHOTOGRAPHS = 16, 320, 416, 48, 8, 32

tf.config.threading.set_intra_op_parallelism_threads(1)


def photograph(number: int) -> Any:
    coarse = tf.random.stateless_uniform([1, 40, 52, 3], [number, 1], 0.0, 255.0)
    smooth = tf.image.resize(coarse, [HEIGHT, WIDTH], "bicubic")[0]
    return tf.io.encode_jpeg(tf.cast(tf.clip_by_value(smooth, 0, 255), tf.uint8))


photographs = tf.stack([photograph(number) for number in range(PHOTOGRAPHS)])
kinds = tf.range(PHOTOGRAPHS) % KINDS


def train(is_slow: bool, clock: StepClock) -> None:
    def cropped(packed: Any, kind: Any) -> tuple[Any, Any]:
        top = tf.random.uniform([], 0, HEIGHT - CROP, tf.int32)
        left = tf.random.uniform([], 0, WIDTH - CROP, tf.int32)
        if is_slow:
            whole = tf.io.decode_jpeg(packed, channels=3)
            crop = tf.image.crop_to_bounding_box(whole, top, left, CROP, CROP)
        else:
            window = tf.stack([top, left, CROP, CROP])
            crop = tf.image.decode_and_crop_jpeg(packed, window, channels=3)
        return tf.ensure_shape(crop, [CROP, CROP, 3]), kind

    dataset = tf.data.Dataset.from_tensor_slices((photographs, kinds)).shuffle(PHOTOGRAPHS).repeat()
    dataset = dataset.map(cropped, num_parallel_calls=1).batch(BATCH, drop_remainder=True)
    layers = [
        tf.keras.Input([CROP, CROP, 3]),
        tf.keras.layers.Rescaling(1 / 255),
        tf.keras.layers.Conv2D(64, 5, strides=2, activation="relu"),
        tf.keras.layers.Conv2D(96, 3, strides=2, activation="relu"),
        tf.keras.layers.GlobalMaxPooling2D(),
        tf.keras.layers.Dense(KINDS),
    ]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
