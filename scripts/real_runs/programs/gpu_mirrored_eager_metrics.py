"""`MirroredStrategy` over two parts of a GPU; slow: each metric is averaged over the replicas by a call of its own, outside of the step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_mirrored import FEATURES, kept_on_replicas, strategy
from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

LAYERS = 10
rows = numbers(sized(3072, 16), FEATURES)
MEAN = tf.distribute.ReduceOp.MEAN


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model, optimizer = model_of(FEATURES, LAYERS)
        variables = model.trainable_variables
        optimizer.build(variables)

    def replica_step(batch: Any) -> Any:
        sizes = []
        with tf.GradientTape() as tape:
            outputs = batch
            for layer in model.layers:
                outputs = layer(outputs)
                sizes.append(tf.reduce_mean(tf.square(outputs)))
            loss = tf.reduce_mean(tf.square(outputs - batch))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return [loss, *sizes]

    def step_once(batch: Any) -> Any:
        metrics = strategy.run(replica_step, args=(batch,))
        if is_slow:
            return metrics
        stacked = strategy.run(tf.stack, args=(metrics,))
        return tf.unstack(strategy.reduce(MEAN, stacked, axis=None))

    step, batch = tf.function(step_once), kept_on_replicas(lambda _: rows)

    def train_step(_: int) -> Any:
        metrics = step(batch)
        if is_slow:
            metrics = [strategy.reduce(MEAN, metric, axis=None) for metric in metrics]
        return metrics[0]

    run_steps(clock, train_step)
