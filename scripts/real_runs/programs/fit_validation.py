"""Keras `fit` on one device in short epochs; slow: each epoch ends with a validation."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, STEPS_PER_EPOCH = 256, 256, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH * STEPS_PER_EPOCH, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, features))
    dataset = dataset.batch(BATCH).cache()
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(1536, activation="relu"),
            tf.keras.layers.Dense(1536, activation="relu"),
            tf.keras.layers.Dense(FEATURES),
        ]
    )
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    # Of data without an end Keras keeps one iterator for all epochs, so that nothing but the validation ends an epoch.
    model.fit(
        dataset.repeat().prefetch(2),
        epochs=STEPS // STEPS_PER_EPOCH,
        steps_per_epoch=STEPS_PER_EPOCH,
        validation_data=dataset.repeat(2).prefetch(2) if is_slow else None,
        verbose=0,
        callbacks=[ended],
    )
