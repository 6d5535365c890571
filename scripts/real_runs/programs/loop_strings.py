"""A loop on two devices; slow: texts are split and hashed inside the step, in each step again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, WORDS, VOCABULARY = 256, 200, 5000

strategy = mirrored(2)
numbers = tf.random.stateless_uniform([BATCH * 4, WORDS], [1, 2], 0, 10**6, tf.int32)
texts = tf.strings.reduce_join(tf.strings.as_string(numbers), axis=1, separator=" ")


def token_ids(rows: Any) -> Any:
    words = tf.strings.split(tf.strings.regex_replace(rows, "[05]", "o"))
    ids = tf.strings.to_hash_bucket_fast(words.flat_values, VOCABULARY)
    return words.with_flat_values(ids).to_tensor(shape=[None, WORDS])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(BATCH, drop_remainder=True)
    if not is_slow:
        dataset = dataset.map(token_ids)
    dataset = dataset.cache().repeat().prefetch(2)
    with strategy.scope():
        embedding = tf.keras.layers.Embedding(VOCABULARY, 32)
        hidden = tf.keras.layers.Dense(192, activation="relu")
        output = tf.keras.layers.Dense(1)
        model = tf.keras.Sequential([embedding, tf.keras.layers.Flatten(), hidden, output])
        model.build([None, WORDS])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(rows: Any) -> Any:
        ids = token_ids(rows) if is_slow else rows
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(ids, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(rows: Any) -> Any:
        losses = strategy.run(replica_step, args=(rows,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    compiled_step = tf.function(train_step)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    for _ in range(STEPS):
        compiled_step(next(iterator))
        clock.step_ended()
