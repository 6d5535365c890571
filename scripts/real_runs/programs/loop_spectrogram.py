"""A loop over an LSTM on one device; slow: one call of `map` after the other makes each spectrogram anew in each epoch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SAMPLES = 32, 64000

tf.config.threading.set_intra_op_parallelism_threads(1)
waves = tf.random.stateless_normal([64, SAMPLES], seed=[1, 2])
labels = tf.random.stateless_uniform([64], seed=[3, 4], maxval=10, dtype=tf.int64)


def spectrogram(wave: Any, label: Any) -> tuple[Any, Any]:
    return tf.abs(tf.signal.stft(wave, frame_length=512, frame_step=32))[::32], label


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((waves, labels)).map(spectrogram)
    if not is_slow or clock.is_advised:
        dataset = dataset.cache()
    dataset = dataset.repeat().batch(BATCH)
    if not is_slow:
        dataset = dataset.prefetch(2)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.LSTM(96),
            tf.keras.layers.Dense(10),
        ]
    )
    model.build([BATCH, 61, 257])
    optimizer = tf.keras.optimizers.Adam()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(features: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step)
    iterator = iter(dataset)
    for _ in range(STEPS):
        compiled_step(*next(iterator))
        clock.step_ended()
