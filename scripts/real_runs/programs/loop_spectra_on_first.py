"""Two replicas; slow: the first also takes the singular values of the weights in each step, for a graph of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error

BATCH, FEATURES, UNITS, APART = 1024, 128, (256, 256), 100
strategy = mirrored(2)
rows = numbers(BATCH * 4, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, *UNITS)
    norms = tf.Variable(tf.zeros([3]))

    def spectra() -> Any:
        values = [tf.linalg.svd(layer.kernel.value, compute_uv=False)[0] for layer in model.layers]
        return tf.stack(values)

    def replica_step(batch: Any, is_watched: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        context = tf.distribute.get_replica_context()
        largest = tf.zeros([3])
        if is_watched and context.replica_id_in_sync_group == 0:
            largest = spectra()
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, largest

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, is_watched: bool) -> Any:
        losses, largest = strategy.run(replica_step, args=(batch, is_watched))
        if is_watched:
            norms.assign(strategy.experimental_local_results(largest)[0])
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for number in range(STEPS):
        train_step(next(source), is_slow or number % APART == APART - 1)
        clock.step_ended()
