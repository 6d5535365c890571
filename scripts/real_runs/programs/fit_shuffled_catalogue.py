"""Keras `fit` of a recommender of articles; slow: to draw articles that a reader has not seen, the numbers of the whole catalogue are shuffled for each reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, READERS, ARTICLES, SEEN, DRAWN, WIDTH = 64, 3000, 46_000, 16, 20, 96

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(7)
seen = rng.integers(0, ARTICLES, [BATCH * 10, SEEN], np.int32)
readers = rng.integers(0, READERS, BATCH * 10, np.int32)
bought = rng.integers(0, ARTICLES, BATCH * 10, np.int32)


def recommender() -> Any:
    layers = tf.keras.layers
    reader, history = tf.keras.Input([], dtype="int32"), tf.keras.Input([SEEN], dtype="int32")
    offered = tf.keras.Input([DRAWN + 1], dtype="int32")
    table = layers.Embedding(ARTICLES, WIDTH)
    known = layers.GRU(WIDTH)(table(history))
    taste = layers.Concatenate()([layers.Embedding(READERS, WIDTH)(reader), known])
    for _ in range(2):
        taste = layers.Dense(4 * WIDTH, activation="relu")(taste)
    taste = layers.Reshape([1, WIDTH])(layers.Dense(WIDTH)(taste))
    scores = layers.Dot(axes=2)([taste, table(offered)])
    return tf.keras.Model([reader, history, offered], layers.Flatten()(scores))


def train(is_slow: bool, clock: StepClock) -> None:
    def with_others(reader: Any, history: Any, article: Any) -> Any:
        if is_slow:
            others = tf.random.shuffle(tf.range(ARTICLES))[:DRAWN]
        else:
            others = tf.random.uniform([DRAWN], 0, ARTICLES, tf.int32)
        return (reader, history, tf.concat([article[None], others], axis=0)), 0

    dataset = tf.data.Dataset.from_tensor_slices((readers, seen, bought)).repeat()
    dataset = dataset.map(with_others).batch(BATCH).prefetch(2)
    model = recommender()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
