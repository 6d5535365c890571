"""A loop on two replicas; slow: the model itself looks up the number of each word, in each epoch again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, WORDS, VOCABULARY, UNITS = 192, 160, 20000, 8

strategy = mirrored(2)
vocabulary = [f"word-{number}" for number in range(VOCABULARY)]
places = tf.random.stateless_uniform([BATCH * 4, WORDS], [1, 2], 0, VOCABULARY, tf.int32)
texts = tf.gather(tf.constant(vocabulary), places)
labels = tf.random.stateless_normal([BATCH * 4, 1], [3, 4])


class Words(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A score of each text, which is given as words or as their numbers."""

    def __init__(self, lookup: Any) -> None:
        super().__init__()
        self.lookup = lookup
        self.embedding = tf.keras.layers.Embedding(VOCABULARY + 1, UNITS)
        self.hidden = tf.keras.layers.Dense(256, activation="relu")
        self.score = tf.keras.layers.Dense(1)

    def call(self, words: Any) -> Any:
        numbers = self.lookup(words) if words.dtype == tf.string else words
        vectors = self.embedding(numbers)
        return self.score(self.hidden(tf.reshape(vectors, [-1, WORDS * UNITS])))


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        lookup = tf.keras.layers.StringLookup(vocabulary=vocabulary)
        model = Words(lookup)
        model(tf.zeros([2, WORDS], tf.int64))
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def batches_of(_context: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(BATCH)
        if not is_slow:
            dataset = dataset.map(lambda words, label: (lookup(words), label))
        return dataset.cache().repeat().prefetch(2)

    def replica_step(words: Any, label: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(words) - label))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(batch: Any) -> Any:
        return strategy.run(replica_step, args=batch)

    compiled_step = tf.function(train_step)
    source = iter(strategy.distribute_datasets_from_function(batches_of))
    for _ in range(STEPS):
        compiled_step(next(source))
        clock.step_ended()
