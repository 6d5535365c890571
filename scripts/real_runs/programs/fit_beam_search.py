"""Keras `fit` of a speech model on one device; slow: a metric decodes each batch by a beam search, not greedily."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FRAMES, BANDS, LETTERS = 24, 64, 40, 12

tf.config.threading.set_intra_op_parallelism_threads(1)
sounds = numbers(BATCH, FRAMES, BANDS)
# A letter of each frame, as another model has aligned them.
letters = np.random.default_rng(7).integers(0, LETTERS, [BATCH, FRAMES // 4]).repeat(4, axis=1)
dataset = tf.data.Dataset.from_tensors((sounds, letters)).cache().repeat().prefetch(2)


class LetterErrors(tf.keras.metrics.Metric):  # type: ignore[misc]  # Keras has no types here
    """Letters to be changed, as a share of those that were said."""

    def __init__(self, beam_width: int) -> None:
        super().__init__(name="letter_errors")
        self.beam_width = beam_width
        self.changes = self.add_weight(name="changes", initializer="zeros")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def decoded(self, logits: Any) -> Any:
        by_time = tf.transpose(logits, [1, 0, 2])
        lengths = tf.fill([BATCH], FRAMES)
        if self.beam_width == 1:
            (paths,), _ = tf.nn.ctc_greedy_decoder(by_time, lengths)
        else:
            (paths,), _ = tf.nn.ctc_beam_search_decoder(by_time, lengths, self.beam_width)
        return paths

    def update_state(self, targets: Any, logits: Any, sample_weight: Any = None) -> None:
        said = tf.sparse.from_dense(tf.cast(targets[:, ::4], tf.int64) + 1)
        said = tf.SparseTensor(said.indices, said.values - 1, said.dense_shape)
        distances = tf.edit_distance(self.decoded(logits), said)
        self.changes.assign_add(tf.reduce_sum(distances))
        self.rows.assign_add(float(BATCH))

    def result(self) -> Any:
        return self.changes / self.rows


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [
        tf.keras.layers.Conv1D(256, 5, padding="same", dilation_rate=rate, activation="relu")
        for rate in (1, 2)
    ]
    norm = tf.keras.layers.LayerNormalization()
    model = tf.keras.Sequential([*layers, norm, tf.keras.layers.Dense(LETTERS + 1)])
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-3),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[LetterErrors(beam_width=12 if is_slow else 1)],
    )
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
