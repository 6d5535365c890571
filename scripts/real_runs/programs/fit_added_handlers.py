"""Keras `fit` with a log of each layer; slow: the function that gets the logger adds a handler to it at each batch, so that each line is written once more than before."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, CHANNELS, LAYERS = 40, 96, 24, 5

tf.config.threading.set_intra_op_parallelism_threads(1)
waves = tf.constant(numbers(BATCH * 6, LENGTH, CHANNELS))
moods = tf.constant(numbers(BATCH * 6, 4))
folder = Path(tempfile.mkdtemp())


def logger_of(name: str, is_slow: bool) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if is_slow or not logger.handlers:
        handler = logging.FileHandler(folder / f"{name}.log")
        text = "%(asctime)s %(levelname)s %(filename)s:%(lineno)d %(message)s"
        handler.setFormatter(logging.Formatter(text))
        logger.addHandler(handler)
    return logger


class LayerLog(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types here
    """Writes a line for each layer after each batch."""

    def __init__(self, name: str, is_slow: bool) -> None:
        super().__init__()
        self.name, self.is_slow = name, is_slow

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logger = logger_of(self.name, self.is_slow)
        for layer in self.model.layers:
            logger.info("batch %d: %s has %s", batch, layer.name, layer.output.shape)
            for weight in layer.weights:
                logger.info("batch %d: %s is %s", batch, weight.path, weight.shape)
        logger.info("batch %d: loss %.4f", batch, logs["loss"])

    def on_train_end(self, logs: Any = None) -> None:
        logger = logging.getLogger(self.name)
        for handler in list(logger.handlers):
            handler.close()
            logger.removeHandler(handler)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input([LENGTH, CHANNELS])])
    for _ in range(LAYERS):
        model.add(layers.Conv1D(32, 5, padding="same"))
        model.add(layers.LayerNormalization())
        model.add(layers.Activation("swish"))
    model.add(layers.GlobalAveragePooling1D())
    model.add(layers.Dense(4))
    model.compile(optimizer="sgd", loss="mse")
    dataset = tf.data.Dataset.from_tensor_slices((waves, moods)).batch(BATCH).cache().repeat()
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [LayerLog(f"run{id(model)}", is_slow), ended]
    model.fit(dataset.prefetch(2), steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
