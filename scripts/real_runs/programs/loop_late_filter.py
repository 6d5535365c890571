"""A loop on two replicas; slow: rows are decoded before a filter throws seven of eight away, not after it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, ROWS = 128, 256, 4096

strategy = mirrored(2)
texts = tf.strings.reduce_join(tf.strings.as_string(numbers(ROWS, FEATURES)), axis=1, separator=",")
kinds = tf.range(ROWS) % 8


def decoded(kind: Any, text: Any) -> tuple[Any, Any]:
    row = tf.strings.to_number(tf.strings.split(text, ","))
    return kind, tf.reshape(row, [FEATURES])


def is_wanted(kind: Any, _row: Any) -> Any:
    return tf.equal(kind, 3)


def batches_of(is_slow: bool) -> Any:
    rows = tf.data.Dataset.from_tensor_slices((kinds, texts)).repeat()
    if is_slow:
        rows = rows.map(decoded).filter(is_wanted)
    else:
        rows = rows.filter(is_wanted).map(decoded)
    return rows.map(lambda _, row: row).batch(BATCH, drop_remainder=True).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 1536, 1536)
    step = step_of(strategy, model, optimizer)
    source: Any = iter(batches_of(is_slow))
    for _ in range(STEPS):
        float(step(next(source)))
        clock.step_ended()
