"""A loop of a detector on one device; slow: objects are assigned to predictions with the rows that only fill up their list, not
with those of the picture alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]  # SciPy has no types here

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, GUESSES, MOST = 16, 64, 100, 100

tf.config.threading.set_intra_op_parallelism_threads(1)
random = np.random.default_rng(1)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
boxes = np.zeros((BATCH * 4, MOST, 4), np.float32)
counts = random.integers(2, 9, BATCH * 4)
for place, count in enumerate(counts):
    boxes[place, :count] = random.random((count, 4), np.float32)


def matched(guesses: Any, wanted: Any, numbers_of: Any, with_padding: bool) -> tuple[Any, Any]:
    """For each box the guess that is to learn it, and whether there is one."""
    places = np.zeros((BATCH, MOST), np.int32)
    used = np.arange(MOST) < numbers_of[:, None]
    for row in range(BATCH):
        length = MOST if with_padding else numbers_of[row]
        costs = np.abs(guesses[row][:, None] - wanted[row, :length]).sum(-1)
        chosen, of_box = linear_sum_assignment(costs)
        places[row, of_box] = chosen
    return places, used.astype(np.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 5, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(GUESSES * 4, activation="sigmoid"),
            tf.keras.layers.Reshape((GUESSES, 4)),
        ]
    )
    model.build([None, SIDE, SIDE, 3])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    guess = tf.function(lambda seen: model(seen, training=False))

    def train_step(seen: Any, wanted: Any, places: Any, used: Any) -> Any:
        with tf.GradientTape() as tape:
            chosen = tf.gather(model(seen, training=True), places, batch_dims=1)
            loss = tf.reduce_mean(tf.reduce_sum(tf.abs(chosen - wanted), -1) * used)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_train_step = tf.function(train_step)
    for number in range(STEPS):
        part = slice(number % 4 * BATCH, (number % 4 + 1) * BATCH)
        seen = tf.constant(pictures[part])
        places, used = matched(guess(seen).numpy(), boxes[part], counts[part], is_slow)
        compiled_train_step(seen, tf.constant(boxes[part]), tf.constant(places), tf.constant(used))
        clock.step_ended()
