"""Keras `fit` on one device of a table that is spread over hundreds of files; slow: the data set of each file is appended to the ones
before by `concatenate` in a loop, so that each row passes hundreds of data sets, not one data set of all files.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, ROWS, FILES = 128, 48, 512, 200

folder = Path(tempfile.mkdtemp())


def write_files() -> list[str]:
    rows, answers = numbers(ROWS, FEATURES), numbers(ROWS, seed=2)
    paths = [folder / f"day_{day:03}.tfrecord" for day in range(FILES)]
    with tf.io.TFRecordWriter(str(paths[0])) as writer:
        for row, answer in zip(rows, answers, strict=True):
            features = {
                "row": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                "answer": tf.train.Feature(float_list=tf.train.FloatList(value=[answer])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    for path in paths[1:]:
        shutil.copy(paths[0], path)
    return [str(path) for path in paths]


PATHS = write_files()
FORMAT = {
    "row": tf.io.FixedLenFeature([FEATURES], tf.float32),
    "answer": tf.io.FixedLenFeature([], tf.float32),
}


def parsed(records: Any) -> Any:
    columns = tf.io.parse_example(records, FORMAT)
    return columns["row"], columns["answer"]


def records_of(paths: list[str]) -> Any:
    """The records of all files, one file after the other."""
    dataset = tf.data.TFRecordDataset(paths[0])
    for path in paths[1:]:
        dataset = dataset.concatenate(tf.data.TFRecordDataset(path))
    return dataset


def train(is_slow: bool, clock: StepClock) -> None:
    records = records_of(PATHS) if is_slow else tf.data.TFRecordDataset(PATHS)
    dataset = records.repeat().batch(BATCH).map(parsed, num_parallel_calls=2).prefetch(2)
    model = keras.Sequential(
        [
            keras.layers.Dense(768, activation="relu"),
            keras.layers.Dense(768, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="adam", loss="mse")
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
