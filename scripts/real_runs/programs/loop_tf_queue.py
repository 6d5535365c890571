"""A loop whose step takes batches from a `tf.queue`; slow: the thread that fills it unpacks each episode again."""

from __future__ import annotations

import lzma
from threading import Event, Thread
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, EPISODES = 384, 512, 8

tf.config.threading.set_intra_op_parallelism_threads(1)
episodes = [
    lzma.compress(np.round(numbers(BATCH, FEATURES, seed=number), 1).tobytes())
    for number in range(EPISODES)
]


def unpacked(episode: bytes) -> Any:
    rows = np.frombuffer(lzma.decompress(episode), np.float32).reshape(BATCH, FEATURES)
    return np.clip((rows - rows.mean(axis=0)) / rows.std(axis=0), -3.0, 3.0)


def feed(queue: Any, is_over: Event, is_slow: bool) -> None:
    ready = [unpacked(episode) for episode in episodes]
    number = 0
    while not is_over.is_set():
        place = number % EPISODES
        queue.enqueue(unpacked(episodes[place]) if is_slow else ready[place])
        number += 1


def train(is_slow: bool, clock: StepClock) -> None:
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(384, activation="relu"), tf.keras.layers.Dense(FEATURES)]
    )
    model.build([BATCH, FEATURES])
    optimizer = tf.keras.optimizers.SGD(0.01)
    queue = tf.queue.FIFOQueue(4, [tf.float32], [[BATCH, FEATURES]])

    def train_step() -> Any:
        rows = queue.dequeue()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows, training=True) - rows))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    is_over = Event()
    thread = Thread(target=feed, args=(queue, is_over, is_slow), name="episodes", daemon=True)
    thread.start()
    compiled_step = tf.function(train_step)
    for _ in range(STEPS):
        compiled_step()
        clock.step_ended()
    is_over.set()
    while thread.is_alive():
        if queue.size() > 0:
            queue.dequeue()
        thread.join(0.01)
