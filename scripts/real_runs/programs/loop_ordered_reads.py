"""A loop over clips of a remote store, of which some take long to come; slow: the order of clips is kept, so that those behind a late one wait."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FRAMES, FEATURES, UNITS, AT_ONCE, EACH = 32, 8, 96, 1024, 4, 6
USUAL_S, LATE_S = 0.004, 0.13

tf.config.threading.set_intra_op_parallelism_threads(1)
store = numbers(16, BATCH, FRAMES, FEATURES)


def fetched(number: Any) -> Any:
    """Ask the store for a batch of clips; one of its disks is slow to answer."""
    time.sleep(LATE_S if number % EACH == EACH - 1 else USUAL_S)
    return store[number % len(store)]


def clip(number: Any) -> Any:
    return tf.ensure_shape(
        tf.numpy_function(fetched, [number], tf.float32), [BATCH, FRAMES, FEATURES]
    )


def dataset_of(is_slow: bool) -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2 * AT_ONCE
    numbered = tf.data.Dataset.range(2 * STEPS).repeat()
    clips = numbered.map(clip, num_parallel_calls=AT_ONCE, deterministic=is_slow)
    return clips.prefetch(1).with_options(options)


def train(is_slow: bool, clock: StepClock) -> None:
    layers = [tf.keras.layers.Dense(UNITS, activation="gelu") for _ in range(3)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
    model.build([None, FRAMES, FEATURES])
    optimizer = tf.keras.optimizers.SGD(1e-2, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(clips: Any) -> Any:
        """Learn to foretell the next frame."""
        with tf.GradientTape() as tape:
            foretold = model(clips[:, :-1], training=True)
            loss = tf.reduce_mean(tf.square(foretold - clips[:, 1:]))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = np.zeros(STEPS)
    source = iter(dataset_of(is_slow))
    for number in range(STEPS):
        losses[number] = train_step(next(source))
        clock.step_ended()
