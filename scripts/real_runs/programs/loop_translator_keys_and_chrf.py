"""A translator with additive attention on two replicas, after the tutorial; slow twice: (a) the attention projects all words of the
source again for each word of the target, not once before the loop over them, (b) the chrF score of what each batch predicted is
taken in Python after each step, not after each twenty-fourth.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, SOURCE, TARGET, WORDS, UNITS = 48, 24, 12, 500, 80
EVERY = 24

strategy = mirrored(2)
random = np.random.default_rng(5)
sources = random.integers(1, WORDS, [BATCH * 6, SOURCE], np.int32)
vocabulary = [
    "".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), random.integers(2, 8)))
    for _ in range(WORDS)
]
targets = random.integers(1, WORDS, [BATCH * 6, TARGET], np.int32)


class Attention(tf.keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Additive attention, as of Bahdanau."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.of_query = tf.keras.layers.Dense(units)
        self.of_values = tf.keras.layers.Dense(units)
        self.score = tf.keras.layers.Dense(1)

    def keys(self, values: Any) -> Any:
        return self.of_values(values)

    def call(self, query: Any, values: Any, keys: Any = None) -> Any:
        if keys is None:
            keys = self.of_values(values)
        scores = self.score(tf.nn.tanh(self.of_query(query)[:, None] + keys))
        return tf.reduce_sum(tf.nn.softmax(scores, axis=1) * values, axis=1)


class Translator(tf.keras.Model):  # type: ignore[misc]  # Keras has no types here
    """Reads a sentence by convolutions and writes one word after the other."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.source_words = tf.keras.layers.Embedding(WORDS, UNITS)
        self.target_words = tf.keras.layers.Embedding(WORDS, UNITS)
        self.reader = tf.keras.layers.Conv1D(UNITS * 4, 3, padding="same", activation="relu")
        self.attention = Attention(UNITS)
        self.cell = tf.keras.layers.GRUCell(UNITS)
        self.scores = tf.keras.layers.Dense(WORDS)

    def call(self, source: Any, target: Any) -> Any:
        values = self.reader(self.source_words(source))
        state = tf.zeros([tf.shape(source)[0], UNITS])
        keys = None if self.is_slow else self.attention.keys(values)
        words, states = self.target_words(target), []
        for place in range(TARGET):
            context = self.attention(state, values, keys)
            state, _ = self.cell(tf.concat([context, words[:, place]], axis=1), [state])
            states.append(state)
        return self.scores(tf.stack(states, axis=1))


def grams(text: str, length: int) -> Counter[str]:
    return Counter(text[i : i + length] for i in range(len(text) - length + 1))


def text_of(numbers: list[int]) -> str:
    return "".join(vocabulary[number] for number in numbers)


def chrf(predicted: Any, wanted: Any) -> float:
    """The chrF score of a batch of sentences: how many groups of up to six letters they share."""
    scores = []
    for guess, reference in zip(predicted.tolist(), wanted.tolist(), strict=True):
        guess, reference = text_of(guess), text_of(reference)
        for length in range(1, 7):
            guessed, known = grams(guess, length), grams(reference, length)
            hits = sum(min(n, known[gram]) for gram, n in guessed.items())
            precision, recall = hits / len(guess), hits / len(reference)
            scores.append(5 * precision * recall / (4 * precision + recall + 1e-9))
    return sum(scores) / len(scores)


def train(is_slow: bool, clock: StepClock) -> None:
    which = os.environ.get("WHICH", "both")
    with strategy.scope():
        model = Translator(is_slow and which in ("a", "both"))
        model(sources[:2], targets[:2])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
    every = 1 if is_slow and which in ("b", "both") else EVERY

    def replica_step(source: Any, target: Any) -> Any:
        before = tf.pad(target[:, :-1], [[0, 0], [1, 0]])
        with tf.GradientTape() as tape:
            scores = model(source, before, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.argmax(scores, axis=2, output_type=tf.int32)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(source: Any, target: Any) -> Any:
        losses, predicted = strategy.run(replica_step, args=(source, target))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None), predicted

    dataset = tf.data.Dataset.from_tensor_slices((sources, targets)).batch(BATCH).cache()
    dataset = strategy.experimental_distribute_dataset(dataset.repeat().prefetch(2))
    values = []
    for number, (source, target) in zip(range(STEPS), dataset, strict=False):
        _, predicted = train_step(source, target)
        if number % every == every - 1:
            guesses = np.concatenate(strategy.experimental_local_results(predicted))
            known = np.concatenate(strategy.experimental_local_results(target))
            values.append(chrf(guesses, known))
        clock.step_ended()
