"""A loop on two replicas; slow: the loss takes the singular values of a weight matrix, which no other op does faster."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 256, 128

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def with_norm(model: Any, batch: Any) -> Any:
    values = tf.linalg.svd(model.layers[0].kernel, compute_uv=False)
    return squared_error(model, batch) + 1e-4 * tf.stop_gradient(values[0])


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    last = tf.Variable(0.0)

    def with_last_norm(model: Any, batch: Any) -> Any:
        return squared_error(model, batch) + 1e-4 * tf.stop_gradient(last)

    if clock.is_advised:
        last.assign(tf.linalg.svd(model.layers[0].kernel, compute_uv=False)[0])
    slow_loss = with_last_norm if clock.is_advised else with_norm
    step = step_of(strategy, model, optimizer, slow_loss if is_slow else squared_error)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
