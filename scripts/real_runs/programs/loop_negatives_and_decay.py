"""A recommender; slow twice: Python draws items that a user has not seen, one by one, and the whole tables decay by the loss."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, NEGATIVES, USERS, ITEMS, UNITS, SEEN = 768, 4, 4000, 20_000, 64, 40

tf.config.threading.set_intra_op_parallelism_threads(1)
generator = np.random.default_rng(11)
seen_items = generator.integers(0, ITEMS, (USERS, SEEN))
seen_by = [set(items.tolist()) for items in seen_items]


def drawn_one_by_one(users: Any) -> Any:
    """For each user items that are not among those of the user."""
    rows = []
    for user in users:
        row: list[int] = []
        while len(row) < NEGATIVES:
            item = random.randint(0, ITEMS - 1)
            if item not in seen_by[user]:
                row.append(item)
        rows.append(row)
    return np.array(rows)


def drawn_at_once(users: Any) -> Any:
    return generator.integers(0, ITEMS, (len(users), NEGATIVES))


class Factors(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Tables of users and items, and dense layers on what their rows have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.users = tf.Variable(numbers(USERS, UNITS) * 0.1)
        self.items = tf.Variable(numbers(ITEMS, UNITS) * 0.1)
        self.dense = [tf.Variable(numbers(UNITS, UNITS) * 0.1) for _ in range(3)]

    def __call__(self, users: Any, items: Any) -> tuple[Any, tuple[Any, Any]]:
        rows = tf.gather(self.users, users)[:, None], tf.gather(self.items, items)
        states = rows[0] * rows[1]
        for weights in self.dense:
            states = tf.nn.relu(tf.tensordot(states, weights, 1))
        return tf.reduce_sum(states, axis=-1), rows


def train(is_slow: bool, clock: StepClock) -> None:
    factors = Factors()
    variables = factors.trainable_variables
    optimizer = tf.keras.optimizers.SGD(0.05)
    optimizer.build(variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(users: Any, liked: Any, others: Any) -> Any:
        """Score what a user liked above the others."""
        with tf.GradientTape() as tape:
            scores, rows = factors(users, tf.concat([liked[:, None], others], axis=1))
            decayed = (factors.users, factors.items) if is_slow else rows
            decay = tf.add_n([tf.nn.l2_loss(tensor) for tensor in decayed])
            loss = tf.reduce_mean(tf.nn.softplus(scores[:, 1:] - scores[:, :1])) + 1e-5 * decay
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    drawn = drawn_one_by_one if is_slow else drawn_at_once
    for _ in range(STEPS):
        users = generator.integers(0, USERS, BATCH)
        liked = seen_items[users, generator.integers(0, SEEN, BATCH)]
        train_step(tf.constant(users), tf.constant(liked), tf.constant(drawn(users)))
        clock.step_ended()
