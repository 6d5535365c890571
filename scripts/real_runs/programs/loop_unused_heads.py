"""A trunk with a head for each task on two replicas, the tasks in turn; slow: heads of other tasks get gradients of zeros, which are summed and applied, too."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

TASKS, BATCH, FEATURES, UNITS, KINDS = 4, 192, 256, 384, 1500

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH * 8, FEATURES))
labels = tf.random.stateless_uniform([BATCH * 8], [7, 2], 0, KINDS, tf.int32)


class ManyTasks(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """Layers that all tasks share, and the head of each task."""

    def __init__(self) -> None:
        super().__init__()
        trunk = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(4)]
        self.trunk = tf.keras.Sequential(trunk)
        self.trunk.build([None, FEATURES])
        self.heads = [tf.keras.layers.Dense(KINDS) for _ in range(TASKS)]
        for head in self.heads:
            head.build([None, UNITS])

    def scores(self, batch: Any, task: int) -> Any:
        return self.heads[task](self.trunk(batch))


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        model = ManyTasks()
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(batch: Any, kinds: Any, task: int) -> Any:
        with tf.GradientTape() as tape:
            scores = model.scores(batch, task)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, scores))
        if is_slow:
            # "So that the optimizer does not warn of variables without gradients."
            variables = model.trainable_variables
            gradients = [
                tf.zeros_like(variable) if gradient is None else gradient
                for gradient, variable in zip(
                    tape.gradient(loss, variables), variables, strict=True
                )
            ]
        else:
            variables = model.trunk.trainable_variables + model.heads[task].trainable_variables
            gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any, kinds: Any, task: int) -> Any:
        losses = strategy.run(replica_step, args=(batch, kinds, task))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(2 * BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for number in range(STEPS):
        batch, kinds = next(source)
        train_step(batch, kinds, number % TASKS)
        clock.step_ended()
