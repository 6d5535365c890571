"""Keras `fit` on records of digits; slow: each record is in a file of its own, which is opened for it, not many in one file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, SIDE, RECORDS, KINDS = 96, 24, 768, 10

tf.config.threading.set_intra_op_parallelism_threads(1)
folder = Path(tempfile.mkdtemp())
pictures = numbers(RECORDS, SIDE, SIDE)
FEATURES = {
    "picture": tf.io.FixedLenFeature([SIDE, SIDE, 1], tf.float32),
    "kind": tf.io.FixedLenFeature([], tf.int64),
}


def record_of(number: int) -> bytes:
    floats = tf.train.FloatList(value=pictures[number].ravel().tolist())
    features = {
        "picture": tf.train.Feature(float_list=floats),
        "kind": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % KINDS])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


def write(path: Path, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


all_records = [record_of(number) for number in range(RECORDS)]
for number, record in enumerate(all_records):
    write(folder / f"one_{number:04}.tfrecord", [record])
for number in range(4):
    write(folder / f"many_{number}.tfrecord", all_records[number::4])


def parsed(records: Any) -> Any:
    batch = tf.io.parse_example(records, FEATURES)
    return batch["picture"], batch["kind"]


def dataset_of(pattern: str) -> Any:
    paths = sorted(map(str, folder.glob(pattern)))
    records = tf.data.Dataset.from_tensor_slices(paths).repeat().flat_map(tf.data.TFRecordDataset)
    return records.batch(BATCH, drop_remainder=True).map(parsed).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [
        tf.keras.Input([SIDE, SIDE, 1]),
        tf.keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
        tf.keras.layers.Conv2D(48, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(KINDS),
    ]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-2), loss=loss)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    data = dataset_of("one_*" if is_slow else "many_*")
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[ended])
