"""A recommender of the next article; slow twice: the loss takes the softmax over all articles, and Python cuts sessions into windows for each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, ARTICLES, WIDTH, HISTORY, SAMPLED = 256, 3000, 64, 8, 100

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(17)
sessions = [rng.integers(1, ARTICLES, length).tolist() for length in rng.integers(30, 50, 64)]


class NextArticle(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Makes a vector of what was read last; articles near it come next."""

    def __init__(self) -> None:
        super().__init__()
        self.articles = tf.keras.layers.Embedding(ARTICLES, WIDTH)
        self.hidden = [tf.keras.layers.Dense(512, activation="relu") for _ in range(2)]
        self.out = tf.keras.layers.Dense(WIDTH)
        self.weights_of = self.add_weight(shape=[ARTICLES, WIDTH], name="weights_of")
        self.bias_of = self.add_weight(shape=[ARTICLES], initializer="zeros", name="bias_of")

    def call(self, history: Any) -> Any:
        rows = tf.reshape(self.articles(history), [-1, HISTORY * WIDTH])
        for layer in self.hidden:
            rows = layer(rows)
        return self.out(rows)


def windows() -> Iterator[tuple[list[int], int]]:
    """What was read last, and what came next, over and over."""
    while True:
        for session in sessions:
            for place in range(1, len(session)):
                history = session[max(0, place - HISTORY) : place]
                seen = set()
                history = [one for one in history if not (one in seen or seen.add(one))]  # type: ignore[func-returns-value]  # for its None
                yield [0] * (HISTORY - len(history)) + history, session[place]


def batches() -> Iterator[tuple[Any, Any]]:
    source = windows()
    while True:
        rows = [next(source) for _ in range(BATCH)]
        histories, following = zip(*rows, strict=True)
        yield np.array(histories, np.int32), np.array(following, np.int32)


def made_before() -> Iterator[tuple[Any, Any]]:
    source = batches()
    kept = [next(source) for _ in range(8)]
    while True:
        yield from kept


def train(is_slow: bool, clock: StepClock) -> None:
    model = NextArticle()
    model(numbers(1, HISTORY).astype(np.int32) * 0)
    variables = model.trainable_variables
    optimizer = tf.keras.optimizers.SGD(1e-2)
    optimizer.build(variables)

    def loss_of(rows: Any, following: Any) -> Any:
        weights, bias = tf.convert_to_tensor(model.weights_of), tf.convert_to_tensor(model.bias_of)
        if is_slow:
            logits = tf.matmul(rows, weights, transpose_b=True) + bias
            return tf.nn.sparse_softmax_cross_entropy_with_logits(following, logits)
        labels = tf.cast(following[:, None], tf.int64)
        return tf.nn.sampled_softmax_loss(
            model.weights_of.value, model.bias_of.value, labels, rows, SAMPLED, ARTICLES
        )

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(history: Any, following: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(model(history), following))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    source = batches() if is_slow else made_before()
    for _ in range(STEPS):
        history, following = next(source)
        train_step(tf.constant(history), tf.constant(following))
        clock.step_ended()
