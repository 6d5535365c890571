"""Keras `fit` on two devices; slow: the generator tokenizes text in Python, batch by batch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, WORDS, VOCABULARY = 128, 160, 4096

strategy = mirrored(2)
rows = np.random.default_rng(1).integers(0, 10**6, [BATCH, WORDS])
texts = [" ".join(f"word{number}" for number in row) for row in rows]


def tokenized() -> Any:
    tokens = np.zeros([BATCH, WORDS], np.int32)
    for row, text in enumerate(texts):
        for place, word in enumerate(text.split()):
            checksum = 0
            for first in range(len(word) - 2):
                checksum = zlib.crc32(word[first : first + 3].encode("utf-8"), checksum)
            tokens[row, place] = checksum % VOCABULARY
    return tokens


def train(is_slow: bool, clock: StepClock) -> None:
    ready = tokenized()
    labels = rows.sum(axis=1) % 2

    def batches() -> Iterator[Any]:
        while True:
            yield (tokenized() if is_slow else ready), labels

    signature = (tf.TensorSpec([BATCH, WORDS], tf.int32), tf.TensorSpec([BATCH], tf.int64))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
    with strategy.scope():
        embedding = tf.keras.layers.Embedding(VOCABULARY, 32)
        hidden = tf.keras.layers.Dense(640, activation="relu")
        output = tf.keras.layers.Dense(2)
        model = tf.keras.Sequential([embedding, tf.keras.layers.Flatten(), hidden, output])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
