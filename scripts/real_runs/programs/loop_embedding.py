"""A loop on two devices; slow: Adam updates the whole embedding table, where SGD updates the rows of the batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, WORDS, VOCABULARY, WIDTH = 128, 64, 60_000, 64

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.config.threading.set_intra_op_parallelism_threads(1)
strategy = tf.distribute.MirroredStrategy()
tokens = tf.random.stateless_uniform([BATCH * 4, WORDS], [1, 2], 0, VOCABULARY, tf.int32)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(tokens).batch(BATCH).cache().repeat()
    with strategy.scope():
        embedding = tf.keras.layers.Embedding(VOCABULARY, WIDTH)
        hidden = tf.keras.layers.Dense(384, activation="relu")
        output = tf.keras.layers.Dense(1)
        model = tf.keras.Sequential([embedding, tf.keras.layers.Flatten(), hidden, output])
        model.build([None, WORDS])
        choice = tf.keras.optimizers.Adam if is_slow else tf.keras.optimizers.SGD
        optimizer = choice(0.001)
        optimizer.build(model.trainable_variables)

    def replica_step(texts: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(texts, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
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
