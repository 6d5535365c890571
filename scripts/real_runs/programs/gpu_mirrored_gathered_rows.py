"""`MirroredStrategy` over two parts of a GPU; slow: the mean of the outputs is taken of all their rows, which replicas gather."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, step_of_replicas
from scripts.real_runs.gpu_training import run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(16_384, 16), FEATURES)


def mean_of_gathered(outputs: Any) -> Any:
    every = tf.distribute.get_replica_context().all_gather(outputs, axis=0)
    return tf.reduce_mean(every, axis=0)


def mean_of_means(outputs: Any) -> Any:
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.reduce_mean(outputs, axis=0))


def train(is_slow: bool, clock: StepClock) -> None:
    mean_of = mean_of_gathered if is_slow else mean_of_means

    def loss_of(model: Any, batch: Any) -> Any:
        outputs = model(batch, training=True)
        return tf.reduce_mean(tf.square(outputs - mean_of(outputs) - batch))

    step, batch = step_of_replicas(loss_of, 1), kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        return step(batch)

    run_steps(clock, train_step)
