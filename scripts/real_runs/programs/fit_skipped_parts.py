"""Keras `fit` on one device over parts of a file, the newest first; slow: each is reached by parsing and skipping all that stands before it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH, FEATURES, BATCHES_OF_PART = 96, 512, 3
PARTS = STEPS // BATCHES_OF_PART + 1

tf.config.threading.set_intra_op_parallelism_threads(1)
path = str(Path(tempfile.mkdtemp()) / "rows.tfrecord")
layout = {
    "features": tf.io.FixedLenFeature([FEATURES], tf.float32),
    "price": tf.io.FixedLenFeature([1], tf.float32),
}


def write_rows() -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for row in numbers(BATCH * BATCHES_OF_PART * PARTS, FEATURES):
            values = {"features": row.tolist(), "price": [float(row.mean())]}
            feature = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=list_of_values))
                for name, list_of_values in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def parsed(records: Any) -> tuple[Any, Any]:
    columns = tf.io.parse_example(records, layout)
    return columns["features"], columns["price"]


def part_by_part() -> Any:
    """Each part by itself, as a job would read it that trains on one day of the log."""
    batches = tf.data.TFRecordDataset(path).batch(BATCH, drop_remainder=True).map(parsed)
    parts = tf.data.Dataset.range(PARTS - 1, -1, -1)
    return parts.flat_map(
        lambda part: batches.skip(part * BATCHES_OF_PART).take(BATCHES_OF_PART)
    ).prefetch(2)


def in_one_go() -> Any:
    records = tf.data.TFRecordDataset(path).batch(BATCH, drop_remainder=True)
    return records.map(parsed).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    hidden = [tf.keras.layers.Dense(768, activation="gelu") for _ in range(2)]
    model = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="huber")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = part_by_part() if is_slow else in_one_go()
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])


if __name__ == "__main__":
    write_rows()
    run_blocks(train)
