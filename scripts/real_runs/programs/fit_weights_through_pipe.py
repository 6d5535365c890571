"""Keras `fit` beside a process that plays with the weights; slow: they are sent through its pipe after every third batch, not after every twenty-fourth."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, BOARD, MOVES, UNITS, APART, SELDOM = 64, 81, 82, 640, 3, 24

tf.config.threading.set_intra_op_parallelism_threads(1)
boards, moves = numbers(BATCH * 6, BOARD * 4), numbers(BATCH * 6, MOVES, seed=3)

PLAYER = """
import pickle, sys
while True:
    try:
        weights = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    played = sum(len(one) for one in weights)
"""


class Sender(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Sends the weights to the player after some batches."""

    def __init__(self, pipe: Any, apart: int) -> None:
        super().__init__()
        self.pipe, self.apart = pipe, apart

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % self.apart == 0:
            weights = [one.tobytes() for one in self.model.get_weights()]
            pickle.dump(weights, self.pipe)
            self.pipe.flush()


def train(is_slow: bool, clock: StepClock) -> None:
    inputs = tf.keras.Input([BOARD * 4])
    hidden = tf.keras.layers.Dense(UNITS, activation="relu")(inputs)
    for _ in range(3):
        more = tf.keras.layers.Dense(UNITS, activation="relu")(hidden)
        hidden = tf.keras.layers.Add()([hidden, more])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(MOVES)(hidden))
    model.compile(optimizer=tf.keras.optimizers.SGD(1e-3), loss="mse")
    dataset = tf.data.Dataset.from_tensor_slices((boards, moves)).batch(BATCH)
    dataset = dataset.cache().repeat().prefetch(2)
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    with subprocess.Popen([sys.executable, "-S", "-c", PLAYER], stdin=subprocess.PIPE) as player:
        sender = Sender(player.stdin, APART if is_slow else SELDOM)
        model.fit(dataset, steps_per_epoch=STEPS, verbose=0, callbacks=[sender, ended])
