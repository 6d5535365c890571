"""Holds what many training programs share: replicas on logical CPU devices, a small model, and a step over a strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def mirrored(count: int) -> Any:
    """A strategy over `count` logical CPU devices, whose ops run on one thread each."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, devices)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf.distribute.MirroredStrategy()


def dense(strategy: Any, features: int, *units: int) -> tuple[Any, Any]:
    """A model of dense layers that makes as many outputs as it has features, and its optimizer."""
    with strategy.scope():
        layers = [tf.keras.layers.Dense(count, activation="relu") for count in units]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(features)])
        model.build([None, features])
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def squared_error(model: Any, rows: Any) -> Any:
    """How far a model is from giving back its input."""
    return tf.reduce_mean(tf.square(model(rows, training=True) - rows))


def step_of(
    strategy: Any, model: Any, optimizer: Any, loss_of: Callable[[Any, Any], Any] = squared_error
) -> Any:
    """A compiled step of all replicas, which returns the loss. `loss_of`: of the model and a replica's batch."""

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    return tf.function(train_step)


def numbers(*shape: int, seed: int = 1) -> Any:
    """Random float32 numbers, always the same."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
