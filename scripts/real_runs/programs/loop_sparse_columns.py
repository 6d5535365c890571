"""Words of texts are classified; slow: rows are taken from a matrix stored by columns, and each batch is tested for drift."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]  # SciPy has no types here
import scipy.stats  # type: ignore[import-untyped]  # SciPy has no types here
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

TEXTS, WORDS, NAMES, BATCH, CHECKED = 150_000, 3_000, 20, 128, 6
TESTED_APART = 100

tf.config.threading.set_intra_op_parallelism_threads(1)
random = np.random.default_rng(1)
counts_by_column = scipy.sparse.random(
    TEXTS, WORDS, 0.01, format="csc", dtype=np.float32, random_state=random
)
names = random.integers(0, NAMES, TEXTS).astype(np.int32)
lengths = np.asarray(counts_by_column.sum(axis=1)).ravel()
traits = random.standard_normal((TEXTS, CHECKED)).astype(np.float32) + lengths[:, None]


def drift(rows: Any) -> list[float]:
    """How surely each trait of a batch is unlike that of all texts."""
    return [
        float(scipy.stats.ks_2samp(traits[rows, column], traits[:2000, column]).pvalue)
        for column in range(CHECKED)
    ]


def train(is_slow: bool, clock: StepClock) -> None:
    counts = counts_by_column if is_slow else counts_by_column.tocsr()
    network = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(640, activation="relu"),
            tf.keras.layers.Dense(640, activation="relu"),
            tf.keras.layers.Dense(NAMES),
        ]
    )
    network.build([None, WORDS])
    optimizer = tf.keras.optimizers.SGD(1e-2)
    optimizer.build(network.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(words: Any, answers: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = network(words, training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=logits)
            )
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    order = np.random.default_rng(2).permutation(TEXTS)
    drifts = []
    for number in range(STEPS):
        rows = order[number * BATCH : (number + 1) * BATCH]
        batch = counts[rows].toarray()
        if is_slow or number % TESTED_APART == 0:
            drifts.append(drift(rows))
        train_step(tf.constant(batch), tf.constant(names[rows]))
        clock.step_ended()
