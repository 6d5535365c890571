"""A loop with an LSTM on two devices; slow: a Python thread counts pairs of words beside it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WORDS, VOCABULARY = 64, 64, 5_000

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy()
texts = np.random.default_rng(3).integers(0, VOCABULARY, [BATCH * 32, WORDS], np.int32)
labels = (texts.sum(axis=1) % 2).astype(np.float32)
words = [str(number) for number in texts[:512].ravel()]


def count_pairs(is_over: Event) -> None:
    while not is_over.is_set():
        counts = Counter(first + second for first, second in pairwise(words))
        counts.most_common(10)


def train(is_slow: bool, clock: StepClock) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).repeat().batch(BATCH).prefetch(4)
    distributed = iter(strategy.experimental_distribute_dataset(dataset))
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Embedding(VOCABULARY, 48),
                tf.keras.layers.LSTM(48),
                tf.keras.layers.Dense(1),
            ]
        )
        model.build([None, WORDS])
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        loss_of = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(batch: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(targets[:, None], model(batch, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step(batch: Any, targets: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica, args=(batch, targets)), axis=None)

    compiled_step = tf.function(train_step)
    is_over = Event()
    counting = Thread(target=count_pairs, args=(is_over,), name="statistics", daemon=True)
    if is_slow:
        counting.start()
    for _ in range(STEPS):
        compiled_step(*next(distributed)).numpy()
        clock.step_ended()
    is_over.set()
    if is_slow:
        counting.join()
