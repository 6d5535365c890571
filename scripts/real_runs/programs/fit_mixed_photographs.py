"""Keras `fit` on pairs of photographs that are laid over each other; slow: the pairs come from two data sets of the same files, so that each is decoded twice."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FILES, SIDE, SMALL, KINDS = 12, 96, 400, 48, 10

tf.config.threading.set_intra_op_parallelism_threads(1)
# The step has one core, and the pipeline the other.
tf.config.threading.set_inter_op_parallelism_threads(1)
noise = tf.random.stateless_uniform([FILES, SIDE // 8, SIDE // 8, 3], [7, 8])
large = tf.cast(255 * tf.image.resize(noise, [SIDE, SIDE]), tf.uint8)
files = [tf.io.encode_jpeg(picture).numpy() for picture in large]
kinds = tf.one_hot(tf.range(FILES) % KINDS, KINDS)


def read(file: Any, kind: Any) -> tuple[Any, Any]:
    picture = tf.image.resize(tf.io.decode_jpeg(file, channels=3), [SMALL, SMALL])
    return picture / 255, kind


def photographs(seed: int) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((files, kinds)).shuffle(FILES, seed=seed)
    return dataset.map(read).batch(BATCH).repeat()


def over(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
    share = tf.random.uniform([], 0.5, 1.0)
    pictures = share * first[0] + (1 - share) * second[0]
    return pictures, share * first[1] + (1 - share) * second[1]


def with_other_order(pictures: Any, kind: Any) -> tuple[Any, Any]:
    return over((pictures, kind), (pictures[::-1], kind[::-1]))


def dataset_of(is_slow: bool) -> Any:
    if is_slow:
        mixed = tf.data.Dataset.zip((photographs(1), photographs(2))).map(over)
    else:
        mixed = photographs(1).map(with_other_order)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    return mixed.prefetch(2).with_options(options)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input([SMALL, SMALL, 3]),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(128, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(KINDS, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="categorical_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
