"""A loop on two devices over records; slow: their file is compressed, and each epoch unpacks it again; else cached."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored

BATCH, FEATURES, RECORDS = 192, 32768, 384

strategy = mirrored(2)


def write_records(path: str, compression: str) -> None:
    rng = np.random.default_rng(1)
    with tf.io.TFRecordWriter(path, compression) as writer:
        for _ in range(RECORDS):
            writer.write(rng.integers(0, 12, FEATURES, dtype=np.uint8).tobytes())


def parsed(record: Any) -> Any:
    return tf.reshape(tf.io.decode_raw(record, tf.uint8), [FEATURES])


def train(is_slow: bool, clock: StepClock) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tfrecord") as file:
        compression = "GZIP" if is_slow else ""
        write_records(file.name, compression)
        dataset = tf.data.TFRecordDataset(file.name, compression)
        dataset = dataset.map(parsed, num_parallel_calls=2).batch(BATCH)
        dataset = (
            (dataset.cache() if not is_slow or clock.is_advised else dataset).repeat().prefetch(2)
        )
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(32), tf.keras.layers.Dense(1)])
            model.build([BATCH, FEATURES])
            optimizer = tf.keras.optimizers.SGD(0.001)
            optimizer.build(model.trainable_variables)

        def replica_step(features: Any) -> Any:
            with tf.GradientTape() as tape:
                scores = model(tf.cast(features, tf.float32) / 12.0, training=True)
                loss = tf.reduce_mean(tf.square(scores - 1.0))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        def train_step(features: Any) -> Any:
            losses = strategy.run(replica_step, args=(features,))
            return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

        compiled_step = tf.function(train_step)
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        for _ in range(STEPS):
            compiled_step(next(iterator))
            clock.step_ended()
