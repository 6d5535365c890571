"""Clusters are the labels; slow: callbacks find the clusters anew and the rank of the features in each step, not each epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy.cluster.vq import kmeans2  # type: ignore[import-untyped]  # SciPy has no types here

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, FEATURES, WIDTH, CLUSTERS, KEPT, TURNS = 512, 64, 384, 24, 3000, 4
tf.config.threading.set_intra_op_parallelism_threads(1)
rows = numbers(BATCH * STEPS, FEATURES)
bank = numbers(KEPT, 128, seed=2)


class Clusters(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Finds the clusters of the bank of features."""

    def __init__(self, centers: Any, is_each_batch: bool) -> None:
        super().__init__()
        self._centers, self._is_each_batch = centers, is_each_batch

    def _find(self) -> None:
        found, _ = kmeans2(bank, CLUSTERS, iter=TURNS, minit="++", seed=1)
        self._centers.assign(found[:, :FEATURES])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._find()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._is_each_batch:
            self._find()


class Rank(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Watches for collapsed features."""

    def __init__(self, is_each_batch: bool) -> None:
        super().__init__()
        self._is_each_batch = is_each_batch
        self.ranks: list[float] = []

    def _note(self) -> None:
        sizes = np.linalg.svd(bank, compute_uv=False)
        shares = sizes / sizes.sum()
        self.ranks.append(float(np.exp(-(shares * np.log(shares)).sum())))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._is_each_batch:
            self._note()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note()


class Clock(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    def __init__(self, clock: StepClock) -> None:
        super().__init__()
        self._clock = clock

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._clock.step_ended()


def train(is_slow: bool, clock: StepClock) -> None:
    centers = tf.Variable(tf.zeros([CLUSTERS, FEATURES]), trainable=False)
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(3)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(FEATURES)])
    model.build([None, FEATURES])

    def loss_of(_: Any, outputs: Any) -> Any:
        return tf.reduce_logsumexp(-tf.matmul(outputs, centers, transpose_b=True), axis=1)

    model.compile("adam", loss=loss_of)
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(BATCH).prefetch(2)
    callbacks = [Clusters(centers, is_slow), Rank(is_slow), Clock(clock)]
    model.fit(dataset, epochs=1, verbose=0, callbacks=callbacks)
