"""A loop on two devices; slow: histograms of all weights are written for TensorBoard after each step."""

from __future__ import annotations

import tempfile

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, step_of

BATCH, FEATURES = 192, 512

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 4, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(features).batch(BATCH).cache().repeat()
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(FEATURES)]
        )
        model.build([BATCH, FEATURES])
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    compiled_step = step_of(strategy, model, optimizer)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    with tempfile.TemporaryDirectory() as folder:
        writer = tf.summary.create_file_writer(folder)
        for number in range(STEPS):
            loss = compiled_step(next(iterator))
            if is_slow:
                with writer.as_default(step=number):
                    tf.summary.scalar("loss", loss)
                    for weights in model.trainable_variables:
                        tf.summary.histogram(weights.path, weights)
            clock.step_ended()
