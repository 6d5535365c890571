"""A loop on one device over padded texts; slow: every third batch has a length of its own, which traces the step again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, VOCABULARY = 64, 128, 2000

tokens = tf.random.stateless_uniform(
    [BATCH, LENGTH], seed=[1, 2], maxval=VOCABULARY, dtype=tf.int32
)
labels = tf.random.stateless_uniform([BATCH], seed=[3, 4], maxval=10, dtype=tf.int64)


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(VOCABULARY, 64),
            tf.keras.layers.Conv1D(192, 5, activation="relu"),
            tf.keras.layers.Conv1D(192, 5, activation="relu"),
            tf.keras.layers.GlobalMaxPooling1D(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.build([None, None])
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(texts: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(texts, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled_step = tf.function(train_step, reduce_retracing=clock.is_advised)
    for number in range(STEPS):
        is_shorter = is_slow and number % 3 == 1
        compiled_step(tokens[:, : LENGTH - number // 3 - 1] if is_shorter else tokens, labels)
        clock.step_ended()
