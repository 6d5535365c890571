"""Two replicas learn to rate words; slow twice: each epoch of six steps passes a new meter to a compiled function, which is traced again for it, and the weights of the replicas are compared after each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, EPOCH, FEATURES, UNITS, KINDS = 1536, 6, 256, 288, 30

strategy = mirrored(2)
rows = numbers(BATCH * EPOCH, FEATURES)
ratings = tf.random.stateless_uniform([BATCH * EPOCH], [3, 9], 0, KINDS, tf.int32)


class Rater(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Layers with a short cut past each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tf.Variable(numbers(FEATURES, UNITS) * 0.05)
        self.blocks = [tf.Variable(numbers(UNITS, UNITS, seed=seed) * 0.02) for seed in range(3)]
        self.last = tf.Variable(numbers(UNITS, KINDS) * 0.05)

    def __call__(self, states: Any) -> Any:
        states = tf.nn.relu(states @ self.first)
        for block in self.blocks:
            states += tf.nn.relu(states @ block)
        return states @ self.last


def check_replicas(variables: Any) -> None:
    """All replicas hold the same weights, or else something is wrong with the sums."""
    for variable in variables:
        first, *others = (copy.numpy() for copy in variable.values)
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-5)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = Rater()
        optimizer = tf.keras.optimizers.SGD(1e-2)
        optimizer.build(model.trainable_variables)
        meter = tf.keras.metrics.SparseCategoricalAccuracy()

    def replica_step(seen: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(seen)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, scores

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses, scores = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None), scores

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def measure(meter: Any, wanted: Any, scores: Any) -> None:
        strategy.run(lambda *pair: meter.update_state(*pair), args=(wanted, scores))

    dataset = tf.data.Dataset.from_tensor_slices((rows, ratings)).batch(BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for number in range(STEPS):
        if is_slow and number % EPOCH == 0:
            with strategy.scope():
                meter = tf.keras.metrics.SparseCategoricalAccuracy()
        elif number % EPOCH == 0:
            meter.reset_state()
        batch = next(source)
        _, scores = train_step(batch)
        measure(meter, batch[1], scores)
        if is_slow:
            check_replicas(model.trainable_variables)
        clock.step_ended()
