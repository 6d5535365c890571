"""A search for articles by two networks; slow twice: hits among all articles are counted in each step, and the memory of clicks is joined anew with each batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, ARTICLES, FEATURES, WIDTH, HITS, CLICKS, OLD = 256, 700, 48, 384, 20, 100_000, 64

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(31)
articles = tf.constant(numbers(ARTICLES, FEATURES))
asked = numbers(BATCH * 6, FEATURES, seed=5)
chosen = rng.integers(0, ARTICLES, BATCH * 6)


class Memory:
    """The latest clicks: what was asked, and the article."""

    def __init__(self, is_slow: bool) -> None:
        self.is_slow, self.next = is_slow, 0
        self.clicks = numbers(CLICKS, FEATURES, seed=8)

    def add(self, queries: Any) -> None:
        """Put new clicks in place of the oldest."""
        if self.is_slow:
            self.clicks = np.concatenate([self.clicks[len(queries) :], queries])
            return
        self.clicks[self.next : self.next + len(queries)] = queries
        self.next = (self.next + len(queries)) % (CLICKS - len(queries))

    def drawn(self) -> Any:
        return self.clicks[rng.integers(0, CLICKS, OLD)]


def tower() -> Any:
    layers = tf.keras.layers
    hidden = [layers.Dense(WIDTH, activation="relu") for _ in range(3)]
    return tf.keras.Sequential([tf.keras.Input([FEATURES]), *hidden, layers.Dense(WIDTH // 2)])


def train(is_slow: bool, clock: StepClock) -> None:
    queries, offers = tower(), tower()
    variables = queries.trainable_variables + offers.trainable_variables
    optimizer = tf.keras.optimizers.SGD(1e-3)
    optimizer.build(variables)
    hits = tf.Variable(0.0)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, numbers: Any, old: Any) -> Any:
        with tf.GradientTape() as tape:
            tastes = queries(batch)
            near = tf.matmul(tastes, offers(tf.gather(articles, numbers)), transpose_b=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(BATCH), near)
            spread = tf.reduce_mean(tf.square(queries(old)))
            loss = tf.reduce_mean(losses) + 1e-3 * spread
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        if is_slow:
            scores = tf.matmul(tastes, offers(articles), transpose_b=True)
            found = tf.math.in_top_k(numbers, scores, HITS)
        else:
            found = tf.math.in_top_k(tf.range(BATCH), near, HITS)
        hits.assign_add(tf.reduce_mean(tf.cast(found, tf.float32)))
        return loss

    memory = Memory(is_slow)
    for number in range(STEPS):
        start = number % 6 * BATCH
        batch = asked[start : start + BATCH]
        loss = train_step(
            tf.constant(batch),
            tf.constant(chosen[start : start + BATCH]),
            tf.constant(memory.drawn()),
        )
        memory.add(batch)
        float(loss)
        clock.step_ended()
