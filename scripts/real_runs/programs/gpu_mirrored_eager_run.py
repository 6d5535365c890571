"""`MirroredStrategy` over two parts of a GPU; slow: `strategy.run` is called outside of any `tf.function`, so that the step runs op by op."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, strategy
from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock, run_blocks
from scripts.real_runs.training import numbers, squared_error

rows = numbers(sized(16_384, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model, optimizer = model_of(FEATURES, 3)
        variables = model.trainable_variables
        optimizer.build(variables)

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def step_once(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    step = step_once if is_slow else tf.function(step_once)
    batch = kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)


if __name__ == "__main__":
    run_blocks(train)
