"""`MirroredStrategy` over two parts of a GPU; slow: the gradients of a large table are exchanged in each step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, step_of_replicas, strategy
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock, run_blocks
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(512, 16), FEATURES)
with strategy.scope():
    table = tf.Variable(numbers(sized(16_384, 64), FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    def loss_of(model: Any, batch: Any) -> Any:
        rows = table if is_slow else tf.stop_gradient(table)
        return squared_error(model, batch) + 1e-6 * tf.reduce_mean(tf.square(rows))

    step = step_of_replicas(loss_of, [table] if is_slow else [])
    constant = tf.constant(rows)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)


if __name__ == "__main__":
    run_blocks(train)
