"""A loop on two devices that reads its loss each step; slow: the generator changes tokens in Python, ahead of the step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WORDS, VOCABULARY = 64, 128, 20_000
CHANCES = 5
"""Random numbers for each token: a batch takes a third of a step."""

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy()
numbers = random.Random(7)
tokens = np.random.default_rng(1).integers(0, VOCABULARY, [BATCH, WORDS], np.int32)
labels = (tokens.sum(axis=1) % 2).astype(np.float32)


def changed() -> Any:
    rows = [
        [
            token if min(numbers.random() for _ in range(CHANCES)) > 0.02 else token // 2
            for token in row
        ]
        for row in tokens.tolist()
    ]
    return np.asarray(rows, np.int32)


def changed_by_ops(texts: Any, targets: Any) -> tuple[Any, Any]:
    least = tf.reduce_min(tf.random.uniform([CHANCES, BATCH, WORDS]), axis=0)
    return tf.where(least > 0.02, texts, texts // 2), targets


def train(is_slow: bool, clock: StepClock) -> None:
    def batches() -> Iterator[Any]:
        while True:
            yield (changed() if is_slow else tokens), labels

    signature = (tf.TensorSpec([BATCH, WORDS], tf.int32), tf.TensorSpec([BATCH], tf.float32))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if clock.is_advised:
        dataset = tf.data.Dataset.from_tensors((tokens, labels)).repeat().map(changed_by_ops)
    distributed = iter(strategy.experimental_distribute_dataset(dataset))
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(VOCABULARY, 64),
                tf.keras.layers.Conv1D(96, 5, activation="relu"),
                tf.keras.layers.GlobalAveragePooling1D(),
                tf.keras.layers.Dense(1),
            ]
        )
        model.build([None, WORDS])
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        loss_of = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(texts: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(targets[:, None], model(texts, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(texts: Any, targets: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica, args=(texts, targets)), axis=None)

    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        float(compiled_step(*next(distributed)))
        clock.step_ended()
