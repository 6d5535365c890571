"""A network learns to take noise off rows on two replicas; slow: all seeds are set again before each step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

FEATURES, BATCH, SEED = 256, 2304, 17

strategy = mirrored(2)
rows = numbers(BATCH * 4, FEATURES)


def noisy_error(model: Any, batch: Any) -> Any:
    """How well a model finds the rows below the noise."""
    noisy = batch + 0.1 * tf.random.normal(tf.shape(batch))
    return tf.reduce_mean(tf.square(model(noisy, training=True) - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    tf.keras.utils.set_random_seed(SEED)
    model, optimizer = dense(strategy, FEATURES, 1024)
    train_step = step_of(strategy, model, optimizer, noisy_error)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH, drop_remainder=True)
    source = iter(strategy.experimental_distribute_dataset(dataset.cache().repeat().prefetch(2)))
    for number in range(STEPS):
        if is_slow:
            tf.keras.utils.set_random_seed(SEED + number)
        train_step(next(source))
        clock.step_ended()
