"""A loop on a GPU; slow: the embedding table is a variable on the CPU, which looks up the rows and applies their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock

VOCABULARY, FEATURES, WIDTH = sized(50_000, 500), sized(512, 16), sized(2048, 64)
tokens = np.random.default_rng(1).integers(0, VOCABULARY, sized(16_384, 64)).astype(np.int32)


def train(is_slow: bool, clock: StepClock) -> None:
    with tf.device("/CPU:0" if is_slow else None):
        table = tf.Variable(tf.random.stateless_normal([VOCABULARY, FEATURES], [1, 2]))
    model, optimizer = model_of(WIDTH, 3, FEATURES)
    variables = model.trainable_variables
    optimizer.build(variables)

    def step_once(words: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(tf.gather(table, words))))
        of_table, *gradients = tape.gradient(loss, [table, *variables])
        table.scatter_sub(tf.IndexedSlices(1e-3 * of_table.values, of_table.indices))
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    step, constant = tf.function(step_once), tf.constant(tokens)

    def train_step(_: int) -> Any:
        return step(constant)

    run_steps(clock, train_step)
