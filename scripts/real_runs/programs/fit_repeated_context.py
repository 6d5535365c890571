"""Keras `fit` of series, each with a context; slow: the context is repeated for each time and joined to it before the layer."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, TIMES, FEATURES, CONTEXT, UNITS = 32, 48, 32, 192, 256

tf.config.threading.set_intra_op_parallelism_threads(1)
series, contexts = numbers(512, TIMES, FEATURES), numbers(512, CONTEXT, seed=2)
targets = numbers(512, 8, seed=3)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    times, context = tf.keras.Input((TIMES, FEATURES)), tf.keras.Input((CONTEXT,))
    if is_slow:
        joined = layers.Concatenate()([times, layers.RepeatVector(TIMES)(context)])
        hidden = layers.Dense(UNITS, activation="relu")(joined)
    else:
        of_context = layers.Reshape((1, UNITS))(layers.Dense(UNITS)(context))
        hidden = layers.ReLU()(layers.Dense(UNITS, use_bias=False)(times) + of_context)
    hidden = layers.Dense(UNITS // 2, activation="relu")(hidden)
    outputs = layers.Dense(8)(layers.GlobalAveragePooling1D()(hidden))
    model = tf.keras.Model([times, context], outputs)
    model.compile(optimizer="adam", loss="mse")
    data = tf.data.Dataset.from_tensor_slices(((series, contexts), targets))
    data = data.batch(BATCH, drop_remainder=True).cache().repeat().prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
