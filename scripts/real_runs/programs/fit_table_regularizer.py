"""Keras `fit` of a recommender on one device; slow: the regularizer of the tables of embeddings takes every row, not those of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, USERS, ITEMS, WIDTH = 1024, 60_000, 20_000, 32

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(7)
users = rng.integers(0, USERS, BATCH * 6, np.int32)
items = rng.integers(0, ITEMS, BATCH * 6, np.int32)
ratings = numbers(BATCH * 6, 1)


def table(rows: int, is_slow: bool) -> Any:
    decay = tf.keras.regularizers.L2(1e-6)
    if is_slow:
        return tf.keras.layers.Embedding(rows, WIDTH, embeddings_regularizer=decay)
    embedding = tf.keras.layers.Embedding(rows, WIDTH)
    embedding.activity_regularizer = decay
    return embedding


def ranking_model(is_slow: bool) -> Any:
    user, item = (tf.keras.Input([], dtype="int32", name=name) for name in ("user", "item"))
    pair = [table(USERS, is_slow)(user), table(ITEMS, is_slow)(item)]
    hidden = tf.keras.layers.Concatenate()(pair)
    for units in (512, 256):
        hidden = tf.keras.layers.Dense(units, activation="relu")(hidden)
    return tf.keras.Model([user, item], tf.keras.layers.Dense(1)(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    rows = ({"user": users, "item": items}, ratings)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).cache().repeat().prefetch(4)
    model = ranking_model(is_slow)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
