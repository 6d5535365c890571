"""An ensemble forecast of a wind farm on two replicas; slow twice: (a) the range of each sensor in the last hours is taken by
`rolling(...).apply(lambda ...)` of pandas for each batch, not by `max` and `min` of all windows once before the loop, (b) the loss (CRPS)
compares all pairs of members, not the sorted members.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import mirrored, numbers

BATCH, SENSORS, HOURS, AHEAD, MEMBERS, REPLICAS = 64, 4, 12, 12, 100, 2
WHICH = os.environ.get("WHICH", "both")

strategy = mirrored(REPLICAS)
frame = pd.DataFrame(
    numbers(BATCH * 8 + HOURS, SENSORS), columns=[f"sensor_{n}" for n in range(SENSORS)]
)
powers = numbers(BATCH * 8, AHEAD, seed=2)
windows = frame.rolling(HOURS)
known_ranges = windows.max() - windows.min()


def features_of(first: int, is_applied: bool) -> Any:
    """Readings of a batch of hours, and how far they ranged in the hours before each."""
    if is_applied:
        recent = frame.iloc[first + 1 : first + HOURS + BATCH]
        ranges = recent.rolling(HOURS).apply(lambda window: window.max() - window.min())
        ranges = ranges.iloc[HOURS - 1 :]
    else:
        ranges = known_ranges.iloc[first + HOURS : first + HOURS + BATCH]
    readings = frame.iloc[first + HOURS : first + HOURS + BATCH]
    return np.concatenate([readings.to_numpy(), ranges.to_numpy()], 1).astype(np.float32)


def spread_of_pairs(members: Any) -> Any:
    """The mean distance of two members."""
    return tf.reduce_mean(tf.abs(members[..., :, None] - members[..., None, :]), [-1, -2])


def spread_of_sorted(members: Any) -> Any:
    """The mean distance of two members."""
    weights = 2.0 * tf.range(MEMBERS, dtype=tf.float32) - (MEMBERS - 1)
    return 2.0 * tf.reduce_sum(tf.sort(members) * weights, -1) / MEMBERS**2


def train(is_slow: bool, clock: StepClock) -> None:
    is_applied = is_slow and WHICH in ("a", "both")
    spread_of = spread_of_pairs if is_slow and WHICH in ("b", "both") else spread_of_sorted
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input([2 * SENSORS]),
                tf.keras.layers.Dense(512, activation="relu"),
                tf.keras.layers.Dense(512, activation="relu"),
                tf.keras.layers.Dense(AHEAD * MEMBERS),
                tf.keras.layers.Reshape([AHEAD, MEMBERS]),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(seen: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            members = model(seen, training=True)
            error = tf.reduce_mean(tf.abs(members - wanted[..., None]), -1)
            loss = tf.reduce_mean(error - 0.5 * spread_of(members))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(seen: Any, wanted: Any) -> Any:
        losses = strategy.run(replica_step, args=(seen, wanted))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    def shared(rows: Any) -> Any:
        """Half of the rows for each replica."""
        parts = np.split(rows, REPLICAS)

        def part_of(context: Any) -> Any:
            return tf.constant(parts[context.replica_id_in_sync_group])

        return strategy.experimental_distribute_values_from_function(part_of)

    losses = []
    for number in range(STEPS):
        first = number % 8 * BATCH
        seen = features_of(first, is_applied)
        losses.append(train_step(shared(seen), shared(powers[first : first + BATCH])))
        clock.step_ended()
    assert np.isfinite(np.mean(losses))


if __name__ == "__main__":
    from scripts.real_runs.step_clock import run_blocks

    run_blocks(train)
