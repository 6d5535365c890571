"""A loop on two devices; slow: a checkpoint of model and optimizer after every fourth step."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, FEATURES = 128, 512

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MirroredStrategy()
features = tf.random.stateless_normal([BATCH * 8, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(BATCH).cache().repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(1536, activation="relu"),
                tf.keras.layers.Dense(1536, activation="relu"),
                tf.keras.layers.Dense(FEATURES),
            ]
        )
        model.build([BATCH, FEATURES])
        optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)

    def replica_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(rows: Any) -> Any:
        losses = strategy.run(replica_step, args=(rows,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    compiled_step = tf.function(train_step)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(STEPS):
            compiled_step(next(iterator))
            if is_slow and number % 4 == 3:
                checkpoint.write(f"{folder}/training")
            clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
