"""A loop on two replicas; slow: gradients of eight small batches are summed over replicas and applied one by one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error

BATCH, FEATURES, PARTS = 16, 384, 8

strategy = mirrored(2)
parts = tf.constant(numbers(PARTS, BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 768, 768)

    def gradients_of(part: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, part)
        return tape.gradient(loss, model.trainable_variables)

    def apply(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def replica_step(batches: Any) -> None:
        gradients = [gradients_of(part) for part in tf.unstack(batches)] if not is_slow else []
        if is_slow:
            for part in tf.unstack(batches):
                apply(gradients_of(part))
        else:
            apply([tf.add_n(column) / PARTS for column in zip(*gradients, strict=True)])

    step = tf.function(lambda batches: strategy.run(replica_step, args=(batches,)))
    for _ in range(STEPS):
        step(parts)
        clock.step_ended()
