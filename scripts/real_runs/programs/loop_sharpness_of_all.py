"""Two replicas look for flat minima (SAM); slow: the gradients that only say where to look are averaged over the replicas, too, where each could take its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, UNITS, LAYERS, RADIUS, RATE = 8, 512, 1024, 4, 0.05, 1e-3

strategy = mirrored(2)
rows, following = numbers(BATCH * 8, FEATURES), numbers(BATCH * 8, FEATURES, seed=13)


def guess(weights: Any, states: Any) -> Any:
    for matrix in weights[:-1]:
        states = tf.nn.relu(states @ matrix)
    return states @ weights[-1]


def gradients_of(weights: Any, batch: Any) -> tuple[Any, Any]:
    seen, wanted = batch
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = tf.reduce_mean(tf.math.squared_difference(guess(weights, seen), wanted))
    return loss, tape.gradient(loss, weights)


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = [FEATURES, *[UNITS] * LAYERS, FEATURES]
    with strategy.scope():
        matrices = [
            tf.Variable(numbers(*shape) / shape[0] ** 0.5, aggregation=tf.VariableAggregation.MEAN)
            for shape in pairwise(sizes)
        ]

    def replica_step(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        weights = [matrix.read_value() for matrix in matrices]
        _, uphill = gradients_of(weights, batch)
        if is_slow:
            uphill = context.all_reduce(tf.distribute.ReduceOp.MEAN, uphill)
        length = tf.linalg.global_norm(uphill) + 1e-12
        near = [
            one + RADIUS / length * gradient for one, gradient in zip(weights, uphill, strict=True)
        ]
        loss, gradients = gradients_of(near, batch)
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.assign_sub(RATE * gradient)
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices((rows, following)).batch(2 * BATCH).cache()
    source = iter(strategy.experimental_distribute_dataset(dataset.repeat().prefetch(2)))
    for _ in range(STEPS):
        train_step(next(source))
        clock.step_ended()
