"""A loop over samples in memory; slow: a fork of the whole process writes the report of each third step, not one writer that was forked before the samples were read."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

SAMPLES, LENGTH, BATCH, UNITS = 400_000, 256, 256, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
path = Path(tempfile.mkdtemp()) / "reports.jsonl"


def write(report: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(report) + "\n")


def keep_writing(reports: Any) -> None:
    while (report := reports.recv()) is not None:
        write(report)


def write_forked(report: dict[str, Any]) -> None:
    """Write without making the loop wait for the disk."""
    if os.fork() == 0:
        write(report)
        os._exit(0)
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass


def train(samples: Any, is_slow: bool, clock: StepClock) -> None:
    layers = tf.keras.layers
    hidden = [layers.Dense(UNITS, activation="gelu") for _ in range(4)]
    model = tf.keras.Sequential([tf.keras.Input([LENGTH]), *hidden, layers.Dense(LENGTH)])
    optimizer = tf.keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def learn(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows, training=True) - rows) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.linalg.global_norm(gradients)

    rng = np.random.default_rng(5)
    for number in range(STEPS):
        rows = samples[rng.integers(0, SAMPLES, BATCH)].astype(np.float32)
        loss, norm = (float(value) for value in learn(tf.constant(rows)))
        if number % 3 == 0:
            report = {"step": number, "loss": loss, "norm": norm}
            (write_forked if is_slow else outbox.send)(report)
        clock.step_ended()


if __name__ == "__main__":
    inbox, outbox = multiprocessing.Pipe(duplex=False)
    writer = multiprocessing.get_context("fork").Process(target=keep_writing, args=(inbox,))
    writer.start()
    everything = np.random.default_rng(4).integers(0, 2, [SAMPLES, LENGTH], np.int8)
    run_blocks(lambda is_slow, clock: train(everything, is_slow, clock))
    outbox.send(None)
    writer.join()
