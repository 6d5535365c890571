"""Keras `fit` of a classifier of small pictures on two replicas; slow: maps are flattened for the dense layer, not averaged over their places, so that it has a hundred times the weights to sum and to update."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SIDE, KINDS, UNITS = 48, 32, 20, 288

strategy = mirrored(2)
pictures = numbers(BATCH * 4, SIDE, SIDE, 3)
kinds = tf.random.stateless_uniform([BATCH * 4], [13, 1], 0, KINDS, tf.int32)


def classifier(is_slow: bool) -> Any:
    picture = tf.keras.Input([SIDE, SIDE, 3])
    maps = picture
    for count in (24, 48, 96):
        maps = tf.keras.layers.Conv2D(count, 3, padding="same", activation="relu")(maps)
        maps = tf.keras.layers.MaxPooling2D(2)(maps) if count < 96 else maps
    flat = tf.keras.layers.Flatten if is_slow else tf.keras.layers.GlobalAveragePooling2D
    hidden = tf.keras.layers.Dense(UNITS, activation="relu")(flat()(maps))
    return tf.keras.Model(picture, tf.keras.layers.Dense(KINDS)(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((pictures, kinds)).batch(BATCH).cache().repeat()
    with strategy.scope():
        model = classifier(is_slow)
        model.compile(
            optimizer=tf.keras.optimizers.Adam(1e-3),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
