"""A loop on two replicas; slow: records are parsed one by one, where a batch could be parsed at once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, COLUMNS = 256, 64, 16

strategy = mirrored(2)
columns = [f"column{place}" for place in range(COLUMNS)]
schema = {name: tf.io.FixedLenFeature([FEATURES // COLUMNS], tf.float32) for name in columns}


def record(row: Any) -> Any:
    parts = row.reshape(COLUMNS, -1)
    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=part.tolist()))
        for name, part in zip(columns, parts, strict=True)
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


records = tf.constant([record(row) for row in numbers(BATCH * 2, FEATURES)])


def joined(parsed: Any) -> Any:
    return tf.concat([parsed[name] for name in columns], axis=-1)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(records)
    if is_slow:
        parsed = dataset.map(lambda text: joined(tf.io.parse_single_example(text, schema)))
        dataset = parsed.cache() if clock.is_advised else parsed
        dataset = dataset.repeat().batch(BATCH, drop_remainder=True)
    else:
        dataset = dataset.repeat().batch(BATCH, drop_remainder=True)
        dataset = dataset.map(lambda texts: joined(tf.io.parse_example(texts, schema)))
    step = step_of(strategy, *dense(strategy, FEATURES, 768, 768))
    batches = iter(dataset.prefetch(2))
    for _ in range(STEPS):
        step(next(batches))
        clock.step_ended()
