"""Keras `fit` of a recommender on one device; slow: tags become rows of 0 and 1 for a dense layer, not numbers for an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, TAGS, TAGS_OF_ITEM, WIDTH, FEATURES = 256, 16384, 6, 32, 128

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(17)
tags = rng.integers(0, TAGS, [BATCH, TAGS_OF_ITEM], np.int32)
users = numbers(BATCH, FEATURES)
stars = rng.integers(1, 6, [BATCH, 1]).astype("float32")
inputs = {"tags": tags, "user": users}
dataset = tf.data.Dataset.from_tensors((inputs, stars)).cache().repeat().prefetch(2)


def multi_hot(numbers_of_tags: Any) -> Any:
    rows = tf.keras.layers.CategoryEncoding(num_tokens=TAGS, output_mode="multi_hot")
    return tf.keras.layers.Dense(WIDTH, use_bias=False)(rows(numbers_of_tags))


def embedded(numbers_of_tags: Any) -> Any:
    vectors = tf.keras.layers.Embedding(TAGS, WIDTH)(numbers_of_tags)
    return tf.keras.layers.GlobalAveragePooling1D()(vectors)


def train(is_slow: bool, clock: StepClock) -> None:
    item = tf.keras.Input([TAGS_OF_ITEM], dtype="int32", name="tags")
    user = tf.keras.Input([FEATURES], name="user")
    parts = [multi_hot(item) if is_slow else embedded(item), user]
    hidden = tf.keras.layers.Concatenate()(parts)
    for units in (768, 512):
        hidden = tf.keras.layers.Dense(units, activation="relu")(hidden)
    model = tf.keras.Model({"tags": item, "user": user}, tf.keras.layers.Dense(1)(hidden))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse", metrics=["mae"])
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
