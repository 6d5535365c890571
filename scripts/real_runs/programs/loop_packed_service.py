"""A loop whose batches come from a `tf.data` service in another process; slow: they are packed on the way, though both processes are on the same machine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH, SAMPLES, FRAMES, BINS, UNITS = 48, 96, 192, 256, 104

tf.config.threading.set_intra_op_parallelism_threads(1)
service = tf.data.experimental.service

SERVER = """
import sys
import tensorflow as tf
service = tf.data.experimental.service
dispatcher = service.DispatchServer()
address = dispatcher.target.split("://")[1]
worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
print(dispatcher.target, flush=True)
sys.stdin.read()
"""


def batches_of(address: str, is_slow: bool) -> Any:
    """Spectrograms that the service shuffles, and the loudness of their last frames."""
    spectrograms = np.round(numbers(SAMPLES, FRAMES, BINS), 1)
    columns = (spectrograms, spectrograms[:, -1].mean(axis=1))
    dataset = tf.data.Dataset.from_tensor_slices(columns).shuffle(SAMPLES).repeat().batch(BATCH)
    options = tf.data.Options()
    # Tuning would take the first steps to learn how many threads pack and unpack.
    options.autotune.enabled = False
    packing = "AUTO" if is_slow else None
    remote = service.distribute("parallel_epochs", address, compression=packing)
    dataset = dataset.take(2 * STEPS).with_options(options).apply(remote)
    return dataset.prefetch(2).with_options(options)


def train(address: str, is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input([FRAMES, BINS]),
            layers.Conv1D(UNITS, 5, strides=4, activation="relu"),
            layers.Conv1D(UNITS, 5, strides=4, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(1e-3, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def learn(spectrograms: Any, loudness: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(model(spectrograms, training=True)[:, 0] - loudness))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for _, (spectrograms, loudness) in zip(
        range(STEPS), batches_of(address, is_slow), strict=False
    ):
        learn(spectrograms, loudness).numpy()
        clock.step_ended()


if __name__ == "__main__":
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        target = server.stdout.readline().strip()
        run_blocks(lambda is_slow, clock: train(target, is_slow, clock))
