"""A loop over two replicas, which checks the model after each fourth step by a function of arrays; slow: by 24 batches instead of one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, ROWS, APART = 128, 128, 256, 4

strategy = mirrored(2)
held = numbers(24 * ROWS, FEATURES, seed=3)
table = numbers(4096, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    train_step = step_of(strategy, model, optimizer)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def predict(rows: Any) -> Any:
        return model(rows, training=False)

    def evaluate(batches: int) -> float:
        errors = []
        for number in range(batches):
            rows = held[number * ROWS : (number + 1) * ROWS]
            errors.append(float(tf.reduce_mean(tf.abs(predict(rows) - rows))))
        return sum(errors) / len(errors)

    batches = tf.data.Dataset.from_tensor_slices(table).batch(BATCH, drop_remainder=True)
    source = iter(strategy.experimental_distribute_dataset(batches.cache().repeat().prefetch(2)))
    for number in range(STEPS):
        float(train_step(next(source)))
        if number % APART == APART - 1:
            evaluate(24 if is_slow else 1)
        clock.step_ended()
