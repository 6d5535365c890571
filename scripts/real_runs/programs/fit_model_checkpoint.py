"""Keras `fit` on two devices; slow: `ModelCheckpoint` writes the weights after every batch."""

from __future__ import annotations

import tempfile

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES = 96, 768

strategy = mirrored(2)
features = tf.random.stateless_normal([BATCH * 8, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, features)).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(2)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(1536, activation="relu"),
                tf.keras.layers.Dense(1024, activation="relu"),
                tf.keras.layers.Dense(FEATURES),
            ]
        )
        model.compile(optimizer="sgd", loss="mse")
    callbacks = [tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)]
    with tempfile.TemporaryDirectory() as folder:
        if is_slow:
            path = f"{folder}/{{batch}}.weights.h5"
            saving = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=1)
            callbacks.insert(0, saving)
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
