"""Keras `fit` on one device in epochs of six batches; slow: the step runs the model again for its metric, and scores end each epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, KINDS, BATCHES = 256, 256, 12, 6

tf.config.threading.set_intra_op_parallelism_threads(1)
rows = numbers(BATCH * BATCHES, FEATURES)
kinds = np.random.default_rng(11).integers(0, KINDS, BATCH * BATCHES, np.int32)
held_out, held_out_kinds = rows[:300], kinds[:300]


class Classifier(tf.keras.Sequential):  # type: ignore[misc]  # Keras has no types here
    """Reports its accuracy with dropout or, as it will be used, without."""

    is_asked_again = False

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            scores = self(inputs, training=True)
            loss = self.compute_loss(inputs, labels, scores)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        if self.is_asked_again:
            scores = self(inputs, training=False)
        return self.compute_metrics(inputs, labels, scores)


class Scores(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps the F1 score of each kind on held-out rows."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[list[float]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        predicted = self.model.predict(held_out, verbose=0).argmax(axis=1)
        self.scores.append([self.score(kind, predicted) for kind in range(KINDS)])

    def score(self, kind: int, predicted: Any) -> float:
        pairs = list(zip(held_out_kinds, predicted, strict=True))
        hits = sum(1 for label, guess in pairs if label == kind and guess == kind)
        wrong = sum(1 for label, guess in pairs if (label == kind) != (guess == kind))
        return 2 * hits / max(2 * hits + wrong, 1)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((rows, kinds)).batch(BATCH).cache()
    model = Classifier([tf.keras.Input([FEATURES])])
    for units in (1024, 1024):
        model.add(tf.keras.layers.Dense(units, activation="relu"))
        model.add(tf.keras.layers.Dropout(0.2))
    model.add(tf.keras.layers.Dense(KINDS))
    model.is_asked_again = is_slow
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss=loss, metrics=["accuracy"])
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(
        dataset.repeat().prefetch(2),
        epochs=STEPS // BATCHES,
        steps_per_epoch=BATCHES,
        verbose=0,
        callbacks=[Scores(), ended] if is_slow else [ended],
    )
