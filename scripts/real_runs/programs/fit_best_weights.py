"""Keras `fit` of a text classifier in short epochs; slow: `EarlyStopping` copies all weights after each epoch that was better."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, BATCHES, WORDS, WIDTH, LENGTH, KINDS = 64, 6, 100_000, 128, 40, 8

tf.config.threading.set_intra_op_parallelism_threads(1)
texts = tf.random.stateless_uniform([BATCH * BATCHES, LENGTH], [9, 1], 0, WORDS, tf.int32)
kinds = tf.random.stateless_uniform([BATCH * BATCHES], [9, 2], 0, KINDS, tf.int32)
word_vectors = 0.05 * numbers(WORDS, WIDTH)


def train(is_slow: bool, clock: StepClock) -> None:
    embedding = tf.keras.layers.Embedding(WORDS, WIDTH, trainable=False)
    layers = [
        tf.keras.Input([LENGTH], dtype="int32"),
        embedding,
        tf.keras.layers.Conv1D(64, 3, activation="relu"),
        tf.keras.layers.Conv1D(64, 3, activation="relu"),
        tf.keras.layers.GlobalMaxPooling1D(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(KINDS, activation="softmax"),
    ]
    model = tf.keras.Sequential(layers)
    embedding.set_weights([word_vectors])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    stopping = tf.keras.callbacks.EarlyStopping(
        monitor="loss", patience=4, restore_best_weights=is_slow
    )
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    dataset = tf.data.Dataset.from_tensor_slices((texts, kinds)).batch(BATCH).cache().prefetch(2)
    model.fit(dataset, epochs=STEPS // BATCHES, verbose=0, callbacks=[stopping, ended])
