"""Two replicas and hard examples; slow: all samples are sorted in Python in each step, and a density is fitted to the losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy.stats import gaussian_kde  # type: ignore[import-untyped]  # SciPy has no types here

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers

BATCH, FEATURES, UNITS, SAMPLES, POINTS = 1024, 128, (384, 384), 16_000, 100
strategy = mirrored(2)
rows = numbers(SAMPLES, FEATURES)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, *UNITS)
    first = np.random.default_rng(3).random(SAMPLES) * 0.5
    hardness = dict(enumerate(first.tolist()))
    table = first.copy()
    picker = np.random.default_rng(4)
    grid = np.linspace(0.0, 3.0, POINTS)
    drift: list[float] = []

    def replica_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.square(model(batch, training=True) - batch), axis=1)
            loss = tf.reduce_mean(errors)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return errors

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        errors = strategy.run(replica_step, args=(batch,))
        return tf.concat(strategy.experimental_local_results(errors), axis=0)

    def halves(batch: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(np.split(batch, 2)[context.replica_id_in_sync_group])
        )

    for _number in range(STEPS):
        if is_slow:
            order = sorted(hardness.items(), key=lambda item: item[1], reverse=True)
            hard = np.array([sample for sample, _ in order[: BATCH // 2]])
        else:
            hard = np.argpartition(table, -BATCH // 2)[-BATCH // 2 :]
        chosen = np.concatenate([hard, picker.integers(0, SAMPLES, BATCH // 2)])
        errors = train_step(halves(rows[chosen])).numpy()
        if is_slow:
            hardness.update(zip(chosen.tolist(), errors.tolist(), strict=True))
            density = gaussian_kde(errors)(grid)
            drift.append(float(grid[density.argmax()]))
        else:
            table[chosen] = errors
            drift.append(float(np.median(errors)))
        clock.step_ended()
