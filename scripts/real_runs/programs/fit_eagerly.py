"""Keras `fit` of a deep network on one device; slow: `run_eagerly`."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LAYERS = 192, 256, 8

tf.config.threading.set_intra_op_parallelism_threads(1)
features = tf.random.stateless_normal([BATCH * 4, FEATURES], seed=[1, 2])


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((features, features))
    dataset = dataset.batch(BATCH).cache().repeat().prefetch(2)
    layers = []
    for _ in range(LAYERS):
        layers += [tf.keras.layers.Dense(FEATURES), tf.keras.layers.LayerNormalization()]
        layers += [tf.keras.layers.Activation("gelu")]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer="adam", loss="mse", run_eagerly=is_slow)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
