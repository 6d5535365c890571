"""A loop on two devices; slow: Adam updates the whole embedding table, where SGD updates the rows of the batch."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, step_of

BATCH, WORDS, VOCABULARY, WIDTH = 128, 64, 60_000, 64

strategy = mirrored(2)
tokens = tf.random.stateless_uniform([BATCH * 4, WORDS], [1, 2], 0, VOCABULARY, tf.int32)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(tokens).batch(BATCH).cache().repeat()
    with strategy.scope():
        embedding = tf.keras.layers.Embedding(VOCABULARY, WIDTH)
        hidden = tf.keras.layers.Dense(384, activation="relu")
        output = tf.keras.layers.Dense(1)
        model = tf.keras.Sequential([embedding, tf.keras.layers.Flatten(), hidden, output])
        model.build([None, WORDS])
        choice = tf.keras.optimizers.Adam if is_slow else tf.keras.optimizers.SGD
        optimizer = choice(0.001)
        optimizer.build(model.trainable_variables)

    compiled_step = step_of(
        strategy,
        model,
        optimizer,
        lambda model, texts: tf.reduce_mean(tf.square(model(texts, training=True))),
    )
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for _ in range(STEPS):
        compiled_step(next(iterator))
        clock.step_ended()
