"""A loop that hands its losses to a thread that writes them; slow: the thread asks its queue again and again, without a pause."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, SIGNALS, UNITS = 64, 24, 32, 288

tf.config.threading.set_intra_op_parallelism_threads(1)
series = tf.constant(numbers(BATCH * 4, LENGTH, SIGNALS))


class Writer:
    """Writes what was measured as lines of JSON, beside the training."""

    def __init__(self, path: Path, *, is_slow: bool) -> None:
        self.path, self.is_slow = path, is_slow
        self.rows: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.is_over = Event()
        target = self.poll if is_slow else self.wait
        self.thread = Thread(target=target, name="writer", daemon=True)
        self.thread.start()

    def poll(self) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            while not self.is_over.is_set():
                try:
                    row = self.rows.get_nowait()
                except Empty:
                    continue
                file.write(json.dumps(row) + "\n")

    def wait(self) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            while (row := self.rows.get()) is not None:
                file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        self.is_over.set()
        self.rows.put(None)
        self.thread.join()


def train(is_slow: bool, clock: StepClock) -> None:
    kernels = [tf.keras.layers.Conv1D(UNITS, 5, padding="causal", activation="relu") for _ in "ab"]
    model = tf.keras.Sequential([*kernels, tf.keras.layers.Dense(SIGNALS)])
    model.build([None, LENGTH, SIGNALS])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(seen: Any) -> Any:
        with tf.GradientTape() as tape:
            errors = tf.square(model(seen[:, :-1], training=True) - seen[:, 1:])
            loss = tf.reduce_mean(errors)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.linalg.global_norm(gradients)

    source = iter(tf.data.Dataset.from_tensor_slices(series).batch(BATCH).cache().repeat())
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder) / "losses.jsonl", is_slow=is_slow)
        for number in range(STEPS):
            loss, norm = train_step(next(source))
            writer.rows.put({"step": number, "loss": float(loss), "norm": float(norm)})
            clock.step_ended()
        writer.close()
