"""An autoencoder of sensors; slow: after each step the folder of all runs is searched for a file that asks to stop, not that one file looked for."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, SENSORS, FILES = 256, 64, 12, 900

tf.config.threading.set_intra_op_parallelism_threads(1)
recorded = tf.constant(numbers(BATCH * 5, LENGTH, SENSORS))
folder = Path(tempfile.mkdtemp())
for number in range(FILES):
    (folder / f"events.out.{number:05}.v2").touch()


class Autoencoder(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """Packs a stretch of time into few numbers, and unpacks it."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (LENGTH * SENSORS, 256, 24, 256, LENGTH * SENSORS)
        self.kernels = [
            tf.Variable(numbers(one, other) / one**0.5) for one, other in pairwise(sizes)
        ]

    def __call__(self, stretch: Any) -> Any:
        hidden = stretch
        for kernel in self.kernels[:-1]:
            hidden = tf.nn.swish(hidden @ kernel)
        return hidden @ self.kernels[-1]


def train(is_slow: bool, clock: StepClock) -> None:
    model = Autoencoder()

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any) -> Any:
        flat = tf.reshape(batch, [-1, LENGTH * SENSORS])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(model(flat) - flat))
        for kernel, slope in zip(model.kernels, tape.gradient(loss, model.kernels), strict=True):
            kernel.assign_sub(1e-2 * slope)
        return loss

    def is_to_stop() -> bool:
        if is_slow:
            return any(path.endswith("STOP") for path in tf.io.gfile.glob(str(folder / "*")))
        return bool(tf.io.gfile.exists(str(folder / "STOP")))

    dataset = tf.data.Dataset.from_tensor_slices(recorded).batch(BATCH).cache().repeat().prefetch(2)
    for batch in dataset.take(STEPS):
        train_step(batch)
        clock.step_ended()
        if is_to_stop():
            break
