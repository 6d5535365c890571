"""A loop on a GPU; slow: the rank of each label comes from sorting its scores, where larger scores can be counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

BATCH = sized(2048, 16)
rows = numbers(BATCH, WIDTH)
labels = np.random.default_rng(2).integers(0, WIDTH, BATCH)
positions = np.arange(WIDTH, dtype=np.float32)


def sorted_ranks(scores: Any, classes: Any) -> Any:
    order = tf.cast(tf.argsort(scores, direction="DESCENDING"), tf.int64)
    return tf.reduce_sum(tf.where(order == classes[:, None], positions, 0.0), axis=1)


def counted_ranks(scores: Any, classes: Any) -> Any:
    own = tf.gather(scores, classes, batch_dims=1)
    return tf.reduce_sum(tf.cast(scores > own[:, None], tf.float32), axis=1)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = model_of(WIDTH, 5)
    optimizer.build(model.trainable_variables)
    ranks_of = sorted_ranks if is_slow else counted_ranks

    def step_once(batch: Any, classes: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(batch)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, scores)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.reduce_mean(1 / (1 + ranks_of(scores, classes)))

    step, batch, classes = tf.function(step_once), tf.constant(rows), tf.constant(labels)
    reciprocal_ranks: list[Any] = []

    def train_step(_: int) -> Any:
        loss, reciprocal_rank = step(batch, classes)
        reciprocal_ranks.append(reciprocal_rank)
        return loss

    run_steps(clock, train_step)
