"""A loop on two replicas that reads series from TFRecords; slow: a data set of its own is made and batched for each window."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, SENSORS, LENGTH, SERIES, FILES = 96, 4, 96, 512, 4

strategy = mirrored(2)
folder = Path(tempfile.mkdtemp())
for number in range(FILES):
    with tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord")) as writer:
        series = tf.io.serialize_tensor(numbers(SERIES, SENSORS, seed=number))
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[series.numpy()]))
        features = tf.train.Features(feature={"series": feature})
        writer.write(tf.train.Example(features=features).SerializeToString())


def parsed(record: Any) -> Any:
    example = tf.io.parse_single_example(record, {"series": tf.io.FixedLenFeature([], tf.string)})
    return tf.ensure_shape(tf.io.parse_tensor(example["series"], tf.float32), [SERIES, SENSORS])


def flat(windows: Any) -> Any:
    return tf.reshape(windows, [-1, LENGTH * SENSORS])


def windows_one_by_one(series: Any) -> Any:
    points = tf.data.Dataset.from_tensor_slices(series)
    windows = points.window(LENGTH, shift=1, drop_remainder=True)
    return windows.flat_map(lambda window: window.batch(LENGTH, drop_remainder=True))


def windows_at_once(series: Any) -> Any:
    return tf.signal.frame(series, LENGTH, 1, axis=0)


def batches_of(is_slow: bool) -> Any:
    paths = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False).repeat()
    series = paths.interleave(tf.data.TFRecordDataset, cycle_length=FILES).map(parsed)
    if is_slow:
        windows = series.flat_map(windows_one_by_one).batch(BATCH, drop_remainder=True)
    else:
        windows = series.map(windows_at_once).rebatch(BATCH, drop_remainder=True)
    return windows.map(flat).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, LENGTH * SENSORS, 768, 768))
    batches = strategy.distribute_datasets_from_function(lambda _context: batches_of(is_slow))
    source = iter(batches)
    for _ in range(STEPS):
        step(next(source))
        clock.step_ended()
