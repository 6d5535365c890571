"""Keras `fit` of clips on one device; slow: `TimeDistributed` runs the layers of a picture once for each of 8 pictures of a clip."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, PICTURES, SIDE, ACTIONS = 16, 8, 64, 12

tf.config.threading.set_intra_op_parallelism_threads(1)
clips = numbers(BATCH * 4, PICTURES, SIDE, SIDE, 3)
actions = (numbers(BATCH * 4, seed=2) > 0).astype("int32") * (ACTIONS - 1)


class AllPictures(tf.keras.layers.Layer):  # type: ignore[misc]  # Keras has no types here
    """Runs a layer once, with the pictures of all clips as its batch."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        outputs = self.layer(tf.reshape(inputs, [-1, *inputs.shape[2:]]))
        return tf.reshape(outputs, [-1, PICTURES, *outputs.shape[1:]])


def clip_model(wrapper: Any) -> Any:
    pictures = tf.keras.Input([PICTURES, SIDE, SIDE, 3])
    hidden = wrapper(tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"))(pictures)
    hidden = wrapper(tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"))(hidden)
    hidden = wrapper(tf.keras.layers.Flatten())(hidden)
    hidden = wrapper(tf.keras.layers.Dense(64, activation="relu"))(hidden)
    hidden = tf.keras.layers.Conv1D(128, 5, activation="relu")(hidden)
    hidden = tf.keras.layers.GlobalMaxPooling1D()(hidden)
    return tf.keras.Model(pictures, tf.keras.layers.Dense(ACTIONS, activation="softmax")(hidden))


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((clips, actions)).batch(BATCH).cache()
    model = clip_model(tf.keras.layers.TimeDistributed if is_slow else AllPictures)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="sparse_categorical_crossentropy")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = dataset.repeat().prefetch(2)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
