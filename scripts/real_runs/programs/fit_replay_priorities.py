"""Keras trains a Q-network from a replay memory; slow: Python keeps priorities in a tree, and the step unpacks states."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, MEMORY, SIDE, ACTIONS, DISCOUNT = 128, 4096, 24, 6, 0.99

tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(41)
frames = rng.integers(0, 4, [512, 4, SIDE, SIDE], np.uint8) * 60
packed = [zlib.compress(frame.tobytes(), 1) for frame in frames]
actions = rng.integers(0, ACTIONS, 512)
rewards = rng.standard_normal(512).astype("float32")


class SumTree:
    """Priorities of a memory, with the sum of each half, quarter and so on."""

    def __init__(self) -> None:
        self.sums = [1.0] * (2 * MEMORY)
        self.array = np.ones(MEMORY, np.float32)

    def set_each(self, places: list[int], priorities: list[float]) -> None:
        for place, priority in zip(places, priorities, strict=True):
            node = place + MEMORY
            self.sums[node] = priority
            while node > 1:
                node //= 2
                self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def set_all(self, places: Any, priorities: Any) -> None:
        self.array[places] = priorities


class Priorities(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types here
    """Gives transitions the priority of their last error, for all of the eight steps that each was in."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.tree = SumTree()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        errors = self.model.errors.numpy()
        places = (np.arange(BATCH * 8) + batch * BATCH) % MEMORY
        priorities = np.repeat(np.abs(errors) + 1e-3, 8)
        if self.is_slow:
            self.tree.set_each(places.tolist(), priorities.tolist())
        else:
            self.tree.set_all(places, priorities)


def unpacked(states: Any) -> Any:
    """The pixels of states, which are packed or not."""
    if states.dtype == tf.uint8:
        return states
    flat = tf.io.decode_raw(tf.io.decode_compressed(states, "ZLIB"), tf.uint8)
    return tf.reshape(flat, [BATCH, 4, SIDE, SIDE])


class QNetwork(tf.keras.Model):  # type: ignore[misc]  # Keras has no types here
    """Values of actions, and the same network as it was some time ago."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = self.network(), self.network()
        self.target.trainable = False
        self.errors = tf.Variable(tf.zeros([BATCH]), trainable=False)

    @staticmethod
    def network() -> Any:
        pixels = tf.keras.layers.Rescaling(1 / 255, input_shape=[4, SIDE, SIDE])
        hidden = [tf.keras.layers.Dense(units, activation="relu") for units in (512, 256)]
        flat = tf.keras.layers.Flatten()
        return tf.keras.Sequential([pixels, flat, *hidden, tf.keras.layers.Dense(ACTIONS)])

    def call(self, states: Any) -> Any:
        return self.online(states)

    def train_step(self, data: Any) -> Any:
        packed_states, packed_next_states, chosen, reward = data
        states, next_states = unpacked(packed_states), unpacked(packed_next_states)
        best = tf.reduce_max(self.target(next_states), axis=1)
        goal = reward + DISCOUNT * best
        with tf.GradientTape() as tape:
            values = tf.gather(self.online(states), chosen, axis=1, batch_dims=1)
            errors = goal - values
            loss = tf.reduce_mean(tf.keras.losses.huber(goal[:, None], values[:, None]))
        weights = self.online.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.errors.assign(errors)
        return {"loss": loss}


def dataset_of(is_slow: bool) -> Any:
    states: Any = packed if is_slow else frames
    following = [*states[1:], states[0]] if is_slow else np.roll(frames, -1, axis=0)
    rows = tf.data.Dataset.from_tensor_slices((states, following, actions, rewards)).repeat()
    return rows.batch(BATCH, drop_remainder=True).prefetch(2)


def train(is_slow: bool, clock: StepClock) -> None:
    model = QNetwork()
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-4))
    ended = tf.keras.callbacks.LambdaCallback(on_train_batch_end=clock.step_ended)
    callbacks = [Priorities(is_slow), ended]
    model.fit(dataset_of(is_slow), steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
