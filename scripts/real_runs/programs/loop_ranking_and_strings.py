"""A loop on two replicas; slow twice: NumPy ranks the outputs after each step, and the step hashes texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 192, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
texts = tf.constant([" ".join(f"word{row * place}" for place in range(40)) for row in range(100)])


def with_texts(model: Any, batch: Any) -> Any:
    words = tf.strings.split(texts).flat_values
    buckets = tf.strings.to_hash_bucket_fast(tf.strings.regex_replace(words, "o+", "0"), 64)
    return squared_error(model, batch) + 1e-9 * tf.cast(tf.reduce_max(buckets), tf.float32)


def rank(values: Any) -> Any:
    return np.argsort(np.argsort(np.tile(values, 4), kind="stable"), kind="stable").mean()


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 512, 512)
    step = step_of(strategy, model, optimizer, with_texts if is_slow else squared_error)
    values = numbers(20_000)
    for _ in range(STEPS):
        step(rows)
        if is_slow:
            rank(values)
        clock.step_ended()
