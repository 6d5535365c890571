"""Keras `fit` of a tagger of texts with the usual callbacks, dropout, class weights and a parallel pipeline: nothing slows it down."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, BATCHES, WORDS, WIDTH, LENGTH, KINDS = 64, 12, 5000, 96, 48, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
texts = tf.random.stateless_uniform([BATCH * BATCHES, LENGTH], [2, 1], 1, WORDS, tf.int32)
kinds = tf.random.stateless_uniform([BATCH * BATCHES], [2, 2], 0, KINDS, tf.int32)


def with_unknown_words(words: Any, kind: Any) -> tuple[Any, Any]:
    """Forget some words, so that the model does not rely on them."""
    is_kept = tf.random.uniform(tf.shape(words)) > 0.1
    return tf.where(is_kept, words, 0), kind


def tagger() -> Any:
    words = tf.keras.Input([LENGTH], dtype="int32")
    rows = tf.keras.layers.Embedding(WORDS, WIDTH)(words)
    for _ in range(2):
        seen = tf.keras.layers.MultiHeadAttention(4, WIDTH // 4, dropout=0.1)(rows, rows)
        rows = tf.keras.layers.LayerNormalization()(rows + seen)
        wide = tf.keras.layers.Dense(4 * WIDTH, activation="gelu")(rows)
        rows = tf.keras.layers.LayerNormalization()(rows + tf.keras.layers.Dense(WIDTH)(wide))
    rows = tf.keras.layers.Dropout(0.2)(tf.keras.layers.GlobalAveragePooling1D()(rows))
    return tf.keras.Model(words, tf.keras.layers.Dense(KINDS, activation="softmax")(rows))


def train(_is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((texts, kinds)).cache().shuffle(BATCH * BATCHES)
    dataset = dataset.batch(BATCH, drop_remainder=True)
    dataset = dataset.map(with_unknown_words, num_parallel_calls=2).prefetch(2)
    model = tagger()
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-3, clipnorm=1.0),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [
            tf.keras.callbacks.TerminateOnNaN(),
            tf.keras.callbacks.CSVLogger(Path(folder) / "log.csv"),
            tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
            tf.keras.callbacks.EarlyStopping(monitor="loss", patience=4),
            tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended),
        ]
        weights = {kind: 1.0 + 0.2 * kind for kind in range(KINDS)}
        model.fit(
            dataset,
            epochs=STEPS // BATCHES,
            class_weight=weights,
            verbose=0,
            callbacks=callbacks,
        )
