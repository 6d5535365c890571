"""A loop on four replicas; slow: each of 60 statistics is summed by an all-reduce of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES, STATISTICS = 96, 256, 60

strategy = mirrored(4)
rows = tf.constant(numbers(BATCH, FEATURES))


def one_by_one(model: Any, batch: Any) -> Any:
    context = tf.distribute.get_replica_context()
    means = tf.unstack(tf.reduce_mean(batch, axis=0)[:STATISTICS])
    centre = sum(context.all_reduce("MEAN", mean) for mean in means) / STATISTICS
    return squared_error(model, batch - centre)


def in_one_call(model: Any, batch: Any) -> Any:
    means = tf.unstack(tf.reduce_mean(batch, axis=0)[:STATISTICS])
    sums = tf.distribute.get_replica_context().all_reduce("MEAN", means)
    return squared_error(model, batch - tf.add_n(sums) / STATISTICS)


def together(model: Any, batch: Any) -> Any:
    means = tf.reduce_mean(batch, axis=0)[:STATISTICS]
    centre = tf.distribute.get_replica_context().all_reduce("MEAN", means)
    return squared_error(model, batch - tf.reduce_mean(centre))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    slow_loss = in_one_call if clock.is_advised else one_by_one
    step = step_of(strategy, model, optimizer, slow_loss if is_slow else together)
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
