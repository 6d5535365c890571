"""A loop of two towers on four replicas; slow: (a) the fit of each pair is taken from the diagonal of the product of all with all,
(b) Python's `max` goes through a part of the vectors, number by number, to see whether they grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES, UNITS, SIZE = 2400, 128, 96, 128

strategy = mirrored(4)
questions = numbers(BATCH * 3, FEATURES)
answers = numbers(BATCH * 3, FEATURES, seed=2)
marks = numbers(BATCH * 3, seed=3)


def tower() -> Any:
    """Makes vectors."""
    layers = [tf.keras.layers.Dense(UNITS, activation="relu"), tf.keras.layers.Dense(SIZE)]
    model = tf.keras.Sequential(layers)
    model.build((None, FEATURES))
    return model


def train(is_slow: bool, clock: StepClock) -> None:
    takes_all = is_slow
    goes_through = is_slow
    with strategy.scope():
        left, right = tower(), tower()
        weights = [*left.trainable_variables, *right.trainable_variables]
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(weights)

    def fits_of(asked: Any, answered: Any) -> Any:
        if takes_all:
            fits = tf.matmul(asked, answered, transpose_b=True)
            return tf.linalg.diag_part(fits)
        return tf.reduce_sum(asked * answered, -1)

    def replica_step(batch: Any) -> Any:
        question, answer, mark = batch
        with tf.GradientTape() as tape:
            asked, answered = left(question), right(answer)
            fits = fits_of(asked, answered)
            loss = tf.reduce_mean(tf.square(fits - mark))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return asked[::3]

    train_step = tf.function(lambda batch: strategy.run(replica_step, args=(batch,)))
    dataset = (
        tf.data.Dataset.from_tensor_slices((questions, answers, marks))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    source = strategy.experimental_distribute_dataset(dataset)
    largest = []
    for _, batch in zip(range(STEPS), source, strict=False):
        parts = [part.numpy() for part in strategy.experimental_local_results(train_step(batch))]
        if goes_through:
            largest.append(max(max(abs(part).flat) for part in parts))
        else:
            largest.append(max(float(np.abs(part).max()) for part in parts))
        clock.step_ended()
