"""`MirroredStrategy` over two parts of a GPU; slow: each layer sums three statistics over the replicas, one by one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, step_of_replicas
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(1536, 16), FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    def summed(statistic: Any) -> Any:
        if not is_slow:
            return statistic
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, statistic)

    def loss_of(model: Any, batch: Any) -> Any:
        outputs = batch
        for layer in model.layers:
            outputs = layer(outputs)
            count = summed(tf.cast(tf.shape(outputs)[0], tf.float32))
            mean = summed(tf.reduce_sum(outputs, axis=0)) / count
            spread = summed(tf.reduce_sum(tf.square(outputs - mean), axis=0)) / count
            outputs = (outputs - mean) * tf.math.rsqrt(spread + 1e-3)
        return tf.reduce_mean(tf.square(outputs - batch))

    step, batch = step_of_replicas(loss_of, 6), kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)
