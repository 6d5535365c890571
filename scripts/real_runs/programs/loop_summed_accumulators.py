"""A loop on four replicas that applies gradients of four batches at once; slow: each addition to the accumulators sums replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error

BATCH, FEATURES, DEPTH, PARTS = 32, 256, 16, 4

strategy = mirrored(4)
rows = numbers(BATCH * 4, FEATURES)
dataset = tf.data.Dataset.from_tensors(rows).unbatch().batch(BATCH * 4).cache().repeat()
dataset = dataset.prefetch(2)


def accumulators_of(variables: Any, is_slow: bool) -> list[Any]:
    """A sum per variable; of variables on read each replica adds to one of its own."""
    on_read = tf.VariableSynchronization.ON_READ
    return [
        tf.Variable(
            tf.zeros(variable.shape),
            trainable=False,
            synchronization=tf.VariableSynchronization.AUTO if is_slow else on_read,
            aggregation=tf.VariableAggregation.SUM,
        )
        for variable in variables
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, *[FEATURES] * DEPTH)
    with strategy.scope():
        sums = accumulators_of(model.trainable_variables, is_slow)
    replicas = strategy.num_replicas_in_sync if is_slow else 1

    def add(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        for total, gradient in zip(sums, gradients, strict=True):
            total.assign_add(gradient / PARTS)
        return loss

    def apply() -> None:
        means = [total.read_value() / replicas for total in sums]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        for total in sums:
            total.assign(tf.zeros(total.shape))

    def update(batch: Any) -> Any:
        loss = add(batch)
        apply()
        return loss

    add_step = tf.function(lambda batch: strategy.run(add, args=(batch,)))
    update_step = tf.function(lambda batch: strategy.run(update, args=(batch,)))
    source = iter(strategy.experimental_distribute_dataset(dataset))
    for number in range(1, STEPS + 1):
        batch = next(source)
        update_step(batch) if number % PARTS == 0 else add_step(batch)
        clock.step_ended()
