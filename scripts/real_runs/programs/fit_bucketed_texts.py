"""Keras `fit` on texts of many lengths; slow: the data set puts one text after the other into buckets by length, in each epoch again, not once before."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, TEXTS, WORDS, WIDTH, KINDS = 224, 6144, 3000, 64, 8
BOUNDS = [12, 20, 32]

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(11)
lengths = rng.permuted(np.tile([9, 11, 17, 27], [TEXTS // 4, 1]), axis=1).ravel()
texts = tf.RaggedTensor.from_row_lengths(rng.integers(1, WORDS, lengths.sum()), lengths)
kinds = tf.constant(rng.integers(0, KINDS, TEXTS))


def padded(text: Any, kind: Any) -> tuple[Any, Any]:
    return text.to_tensor(shape=[None, BOUNDS[-1]]), kind


def dataset_of(is_slow: bool) -> Any:
    if is_slow:
        dataset = tf.data.Dataset.from_tensor_slices((texts, kinds)).repeat()
        buckets = dataset.bucket_by_sequence_length(
            lambda text, kind: tf.size(text), BOUNDS, [BATCH] * (len(BOUNDS) + 1), no_padding=True
        )
        return buckets.map(padded).prefetch(2)
    order = np.argsort(lengths, kind="stable")
    dataset = tf.data.Dataset.from_tensor_slices((tf.gather(texts, order), tf.gather(kinds, order)))
    batches = dataset.batch(BATCH, drop_remainder=True).cache().shuffle(TEXTS // BATCH).repeat()
    return batches.map(padded).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input([BOUNDS[-1]]),
            layers.Embedding(WORDS, WIDTH),
            layers.Conv1D(64, 3, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(KINDS),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=[ended])


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
