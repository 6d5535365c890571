"""A loop that hands its outputs to a writer in a thread; slow: the writer packs each of them, and its short queue is full."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import numbers

BATCH, LENGTH, WORDS, UNITS, PENDING = 32, 24, 800, 128, 2

tf.config.threading.set_intra_op_parallelism_threads(1)
tokens = tf.random.stateless_uniform([BATCH, LENGTH], [1, 7], 0, WORDS, tf.int32)


class LanguageModel(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A model of the next word: embedding, a window of convolutions, and scores of all words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(numbers(WORDS, UNITS) * 0.1)
        self.filters = tf.Variable(numbers(3, UNITS, UNITS) * 0.05)

    def __call__(self, words: Any) -> Any:
        states = tf.nn.conv1d(tf.gather(self.table, words), self.filters, 1, "SAME")
        return tf.einsum("blu,wu->blw", tf.nn.gelu(states), self.table)


def write_all(pending: Queue[Any], path: Path, every: int) -> None:
    """Write what comes until None; every so many-th is packed."""
    with path.open("wb") as file:
        for number, scores in enumerate(iter(pending.get, None)):
            if number % every == 0:
                file.write(gzip.compress(scores.numpy().tobytes(), compresslevel=6))


def train(is_slow: bool, clock: StepClock) -> None:
    model = LanguageModel()
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(words: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = model(words[:, :-1])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(words[:, 1:], scores)
            loss = tf.reduce_mean(losses)
        gradients = [
            tf.convert_to_tensor(one) for one in tape.gradient(loss, model.trainable_variables)
        ]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return scores[:, -4:]

    pending: Queue[Any] = Queue(maxsize=PENDING)
    with tempfile.TemporaryDirectory() as folder:
        every = 1 if is_slow else 10 * STEPS
        arguments = (pending, Path(folder) / "scores.gz", every)
        writer = Thread(target=write_all, args=arguments, name="scores writer", daemon=True)
        writer.start()
        for _ in range(STEPS):
            pending.put(train_step(tokens))
            clock.step_ended()
        pending.put(None)
        writer.join()
