"""A loop on two devices; slow: a checkpoint of model and optimizer after every fourth step."""

from __future__ import annotations

import tempfile

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, step_of

BATCH, FEATURES = 128, 512

strategy = mirrored(2)
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

    compiled_step = step_of(strategy, model, optimizer)
    iterator = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(STEPS):
            compiled_step(next(iterator))
            if is_slow and number % 4 == 3:
                checkpoint.write(f"{folder}/training")
            clock.step_ended()
