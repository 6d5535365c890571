"""Keras `fit` on a GPU, in epochs of six steps; slow: each of them ends with a validation."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, sized
from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, EPOCH = sized(2048, 16), sized(256, 32), 6
rows = numbers(BATCH, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    data = tf.data.Dataset.from_tensors(tf.constant(rows))
    data = data.map(lambda batch: (batch, batch)).cache()
    model, optimizer = model_of(WIDTH, 5, FEATURES)
    model.compile(optimizer=optimizer, loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(
        data.repeat().prefetch(2),
        epochs=STEPS // EPOCH,
        steps_per_epoch=EPOCH,
        validation_data=data.repeat(2 * EPOCH).prefetch(2) if is_slow else None,
        verbose=0,
        callbacks=[ended],
    )
