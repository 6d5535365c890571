"""A loop of a relation network on two replicas; slow: (a) the losses are shown as a table of `rich` after every step, (b) the
first layer runs on each pair of objects put together, not on each object.
"""

from __future__ import annotations

import io
import os
from typing import Any

import tensorflow as tf
from rich.console import Console
from rich.table import Table

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers, step_of

WHICH = os.environ.get("WHICH", "both")
BATCH, OBJECTS, SIZE, UNITS, SHOWN = 32, 14, 48, 128, 9

strategy = mirrored(2)
scenes = numbers(BATCH * 4, OBJECTS, SIZE)
answers = numbers(BATCH * 4, 10, seed=2)


class Relations(tf.keras.layers.Layer):  # type: ignore[misc]
    """A layer on each pair of objects."""

    def __init__(self, joins: bool) -> None:
        super().__init__()
        self.joins = joins

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(2 * SIZE, UNITS), initializer="glorot_uniform")
        self.bias = self.add_weight(shape=(UNITS,), initializer="zeros")

    def call(self, objects: Any) -> Any:
        if self.joins:
            left = tf.repeat(objects[:, :, None], OBJECTS, axis=2)
            right = tf.repeat(objects[:, None], OBJECTS, axis=1)
            pairs = tf.concat([left, right], -1)
            return tf.nn.relu(pairs @ self.kernel + self.bias)
        left = objects @ self.kernel[:SIZE]
        right = objects @ self.kernel[SIZE:]
        return tf.nn.relu(left[:, :, None] + right[:, None] + self.bias)


def show(console: Console, losses: list[float]) -> None:
    table = Table(title="training")
    for name in ("step", "loss", "best", "mean"):
        table.add_column(name, justify="right")
    first = max(len(losses) - SHOWN, 0)
    for number in range(first, len(losses)):
        so_far = losses[: number + 1]
        table.add_row(
            str(number),
            f"{so_far[-1]:.4f}",
            f"{min(so_far):.4f}",
            f"{sum(so_far) / len(so_far):.4f}",
        )
    console.print(table)


def train(is_slow: bool, clock: StepClock) -> None:
    shows = is_slow and WHICH in ("a", "both")
    joins = is_slow and WHICH in ("b", "both")
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(SIZE, activation="relu"),
                Relations(joins),
                tf.keras.layers.Dense(2 * UNITS, activation="relu"),
                tf.keras.layers.Lambda(lambda pairs: tf.reduce_sum(pairs, [1, 2])),
                tf.keras.layers.Dense(10),
            ]
        )
        model.build([None, OBJECTS, SIZE])
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def loss_of(model: Any, batch: Any) -> Any:
        objects, targets = batch
        return tf.reduce_mean(tf.square(model(objects, training=True) - targets))

    train_step = step_of(strategy, model, optimizer, loss_of)
    dataset = (
        tf.data.Dataset.from_tensor_slices((scenes, answers))
        .batch(BATCH)
        .cache()
        .repeat()
        .prefetch(2)
    )
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    losses: list[float] = []
    for _, batch in zip(
        range(STEPS), strategy.experimental_distribute_dataset(dataset), strict=False
    ):
        losses.append(float(train_step(batch)))
        if shows:
            show(console, losses)
        else:
            screen.write(f"{losses[-1]:.4f}\n")
        clock.step_ended()
