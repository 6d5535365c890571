"""A loop that pads words of a few sentences between steps; slow: `tracemalloc` was left on, which notes each allocation."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, WORDS, UNITS = 48, 32, 1000, 160
FRAMES = 25

tf.config.threading.set_intra_op_parallelism_threads(1)
draw = np.random.default_rng(4)
sentences = [
    " ".join(f"w{word}" for word in draw.integers(0, WORDS, draw.integers(8, LENGTH)))
    for _ in range(BATCH * 6)
]


class Tagger(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A tagger of words by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.keras.layers.Embedding(WORDS + 1, UNITS)
        self.attention = tf.keras.layers.MultiHeadAttention(4, UNITS // 4)
        self.out = tf.keras.layers.Dense(WORDS + 1)

    def call(self, words: Any) -> Any:
        states = self.table(words)
        return self.out(states + self.attention(states, states))


def padded(texts: list[str]) -> Any:
    """The numbers of the words, a row per sentence; 0 where there is none."""
    batch = np.zeros([len(texts), LENGTH], np.int32)
    for row, text in zip(batch, texts, strict=True):
        numbers = [int(word.removeprefix("w")) + 1 for word in text.split()]
        row[: len(numbers)] = numbers
    return batch


def train(is_slow: bool, clock: StepClock) -> None:
    model = Tagger()
    model(padded(sentences[:BATCH]))
    optimizer = tf.keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(words: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(words, model(words))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    if is_slow:
        tracemalloc.start(FRAMES)
    for number in range(STEPS):
        start = number % 6 * BATCH
        train_step(tf.constant(padded(sentences[start : start + BATCH])))
        clock.step_ended()
    tracemalloc.stop()
