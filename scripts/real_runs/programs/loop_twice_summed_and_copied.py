"""Two replicas rank articles; slow twice: gradients are summed to be clipped, and by the optimizer again, and the rows' histories are deeply copied."""

from __future__ import annotations

import copy
import random
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error

BATCH, FEATURES, UNITS, VISITS = 48, 768, 768, 6

strategy = mirrored(2)
rows = numbers(BATCH * 4, FEATURES)
random_numbers = random.Random(3)
histories: list[dict[str, Any]] = [
    {
        "user": number,
        "visits": [{"page": random_numbers.randrange(900), "seconds": 1.5} for _ in range(VISITS)],
    }
    for number in range(BATCH)
]


def without_newest(history: dict[str, Any]) -> dict[str, Any]:
    """A history whose newest visit is what is to be guessed."""
    history["visits"].pop()
    return history


def pages_of(is_slow: bool) -> list[int]:
    """The last page that each user is known to have seen."""
    if is_slow:
        return [without_newest(one)["visits"][-1]["page"] for one in copy.deepcopy(histories)]
    return [one["visits"][-2]["page"] for one in histories]


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, UNITS, UNITS)

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = squared_error(model, batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        if is_slow:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    dataset = tf.data.Dataset.from_tensors(rows).unbatch().batch(BATCH).cache().repeat()
    source = iter(strategy.experimental_distribute_dataset(dataset.prefetch(2)))
    seen = []
    for _ in range(STEPS):
        train_step(next(source))
        seen.append(pages_of(is_slow))
        clock.step_ended()
