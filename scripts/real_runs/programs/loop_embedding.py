"""A loop on two devices; slow: a penalty on a whole embedding table makes its gradient as large as the table."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, WORDS, VOCABULARY, WIDTH = 128, 64, 150_000, 64

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MirroredStrategy()
tokens = tf.random.stateless_uniform([BATCH * 4, WORDS], [1, 2], 0, VOCABULARY, tf.int32)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(tokens).batch(BATCH).cache().repeat()
    with strategy.scope():
        table = tf.Variable(tf.random.stateless_normal([VOCABULARY, WIDTH], [3, 4]))
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(384, activation="relu"), tf.keras.layers.Dense(1)]
        )
        model.build([BATCH, WORDS * WIDTH])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica_step(texts: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.reshape(tf.gather(table, texts), [-1, WORDS * WIDTH])
            loss = tf.reduce_mean(tf.square(model(rows, training=True)))
            if is_slow:
                loss += 1e-6 * tf.reduce_sum(tf.square(table))
        *gradients, of_table = tape.gradient(loss, [*model.trainable_variables, table])
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        group = tf.distribute.get_replica_context()
        of_table = group.all_reduce(tf.distribute.ReduceOp.SUM, of_table)
        if is_slow:
            table.assign_sub(0.01 * of_table)
        else:
            table.scatter_sub(tf.IndexedSlices(0.01 * of_table.values, of_table.indices))
        return loss

    def train_step(texts: Any) -> Any:
        losses = strategy.run(replica_step, args=(texts,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    compiled_step = tf.function(train_step)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    for _ in range(STEPS):
        compiled_step(next(iterator))
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
