"""A loop on two replicas; slow twice: NumPy orders the data after each step, and the step counts letters in Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 192, 256

strategy = mirrored(2)
table = numbers(BATCH, FEATURES)
rows = tf.constant(table)
text = " ".join(f"word{place * place}" for place in range(1500))


def common_letters(number: Any) -> Any:
    counts = Counter(letter for word in text.split() for letter in word.upper())
    return np.float32(number + len(counts.most_common(3)))


def with_letters(model: Any, batch: Any) -> Any:
    loss = squared_error(model, batch)
    letters = tf.numpy_function(common_letters, [tf.constant(1.0)], tf.float32, stateful=True)
    return loss + 1e-9 * tf.stop_gradient(letters)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 640, 640)
    step = step_of(strategy, model, optimizer, with_letters if is_slow else squared_error)
    for _ in range(STEPS):
        step(rows)
        if is_slow:
            np.median(np.sort(np.concatenate([table] * 8), axis=0), axis=0)
        clock.step_ended()
