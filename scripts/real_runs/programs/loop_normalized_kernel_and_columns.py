"""A recurrent network of sensors on two replicas; slow twice: its kernel is normalized again at each time, and the file has the readings in columns, of which each batch takes some."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import mirrored, numbers, step_of

BATCH, TIME, SENSORS, UNITS, WINDOWS = 512, 8, 96, 384, 24_000
"""`BATCH`: of both replicas."""

strategy = mirrored(2)
folder = Path(tempfile.mkdtemp())


def written(name: str, shape: tuple[int, int]) -> Any:
    """A file of readings of all sensors at all times of each window, as it is mapped into memory."""
    path = folder / name
    readings = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    readings[:] = 0.5
    readings.flush()
    return np.load(path, mmap_mode="r")


columns = written("columns.npy", (TIME * SENSORS, WINDOWS))
rows = written("rows.npy", (WINDOWS, TIME * SENSORS))


def batch_of(places: Any, is_slow: bool) -> Any:
    flat = columns[:, places].T if is_slow else rows[places]
    return np.ascontiguousarray(flat).reshape(BATCH, TIME, SENSORS)


class Recurrent(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types here
    """A gated cell whose kernel has columns of length 1 times a scale."""

    def __init__(self, is_slow: bool) -> None:
        super().__init__()
        self.is_slow = is_slow
        self.kernel = tf.Variable(numbers(SENSORS + UNITS, 2 * UNITS))
        self.scale = tf.Variable(tf.ones([2 * UNITS]))
        self.head = tf.keras.layers.Dense(SENSORS)
        self.head.build([None, UNITS])

    def normalized(self) -> Any:
        return self.scale * tf.math.l2_normalize(self.kernel, axis=0)

    def call(self, batch: Any) -> Any:
        before = self.normalized()

        def move(time: Any, state: Any) -> Any:
            kernel = self.normalized() if self.is_slow else before
            joined = tf.concat([batch[:, time], state], axis=1)
            gate, new = tf.split(tf.matmul(joined, kernel), 2, axis=1)
            gate = tf.sigmoid(gate)
            return time + 1, gate * state + (1.0 - gate) * tf.tanh(new)

        state = tf.zeros([tf.shape(batch)[0], UNITS])
        _, state = tf.while_loop(lambda time, _: time < TIME - 1, move, (0, state))
        return self.head(state)


def loss_of(model: Any, batch: Any) -> Any:
    return tf.reduce_mean(tf.square(model(batch) - batch[:, -1]))


def train(is_slow: bool, clock: StepClock) -> None:
    generator = np.random.default_rng(6)
    with strategy.scope():
        model = Recurrent(is_slow)
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    train_step = step_of(strategy, model, optimizer, loss_of)
    for _ in range(STEPS):
        batch = batch_of(generator.integers(WINDOWS, size=BATCH), is_slow)
        halves = [tf.constant(half) for half in np.split(batch, 2)]
        values = strategy.experimental_distribute_values_from_function(
            lambda context, halves=halves: halves[context.replica_id_in_sync_group]
        )
        float(train_step(values))
        clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
