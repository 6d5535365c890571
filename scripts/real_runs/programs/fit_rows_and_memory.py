"""Keras `fit` on two devices; slow: a generator yields one row after the other, and a callback asks for the memory of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, FEATURES = 48, 256

strategy = mirrored(2)
table = numbers(BATCH * 8, FEATURES)
targets = numbers(BATCH * 8, 4, seed=2)


def rows() -> Iterator[Any]:
    while True:
        yield from zip(table, targets, strict=True)


def batches() -> Iterator[Any]:
    while True:
        for start in range(0, len(table), BATCH):
            yield table[start : start + BATCH], targets[start : start + BATCH]


def dataset_of(is_slow: bool) -> Any:
    size = None if is_slow else BATCH
    shapes = ([FEATURES], [4]) if size is None else ([size, FEATURES], [size, 4])
    signature = tuple(tf.TensorSpec(shape, tf.float32) for shape in shapes)
    source = rows if is_slow else batches
    dataset = tf.data.Dataset.from_generator(source, output_signature=signature)
    return dataset.batch(BATCH, drop_remainder=True) if is_slow else dataset


class MemoryLog(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Keeps how much memory belongs to this process alone, to find a leak."""

    def __init__(self) -> None:
        super().__init__()
        self.process = psutil.Process()
        self.bytes: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.bytes.append(self.process.memory_full_info().uss)


def train(is_slow: bool, clock: StepClock) -> None:
    with strategy.scope():
        hidden = [tf.keras.layers.Dense(1280, activation="relu") for _ in range(2)]
        model = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(4)])
        model.compile(optimizer="adam", loss="mse")
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [MemoryLog(), ended] if is_slow else [ended]
    data = dataset_of(is_slow)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
