"""JAX: small adapters of a fixed network learn; slow twice: each step adds them to its weights, and statistics of rows are updated one row at a time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WIDTH, RANK, LAYERS = 128, 896, 8, 5

rng = np.random.default_rng(43)


class Statistics:
    """Means and variances of all rows so far."""

    def __init__(self) -> None:
        self.mean, self.variance, self.count = np.zeros(WIDTH), np.ones(WIDTH), 1e-4

    def update(self, rows: Any) -> None:
        mean, variance, count = rows.mean(axis=0), rows.var(axis=0), len(rows)
        apart, total = mean - self.mean, self.count + count
        self.mean = self.mean + apart * count / total
        spread = self.variance * self.count + variance * count
        self.variance = (spread + apart**2 * self.count * count / total) / total
        self.count = total

    def normalized(self, rows: Any) -> Any:
        return ((rows - self.mean) / np.sqrt(self.variance + 1e-8)).astype(np.float32)


def loss_of(adapters: Any, fixed: Any, rows: Any, is_slow: bool) -> Any:
    hidden = rows
    for weight, (down, up) in zip(fixed, adapters, strict=True):
        if is_slow:
            hidden = jax.nn.relu(hidden @ (weight + down @ up))
        else:
            hidden = jax.nn.relu(hidden @ weight + (hidden @ down) @ up)
    return jnp.mean(jnp.square(hidden - rows))


def train(is_slow: bool, clock: StepClock) -> None:
    def update(adapters: Any, fixed: Any, rows: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(adapters, fixed, rows, is_slow)
        return jax.tree.map(lambda value, slope: value - 1e-3 * slope, adapters, slopes), loss

    step = jax.jit(update, donate_argnums=0)
    scale = np.float32(np.sqrt(2 / WIDTH))
    fixed = [jnp.asarray(rng.standard_normal([WIDTH, WIDTH], np.float32) * scale)] * LAYERS
    fixed = [weight + 0.0 for weight in fixed]
    adapters = [
        (
            jnp.asarray(rng.standard_normal([WIDTH, RANK], np.float32) * 0.02),
            jnp.zeros([RANK, WIDTH]),
        )
        for _ in range(LAYERS)
    ]
    statistics = Statistics()
    measured = rng.standard_normal([6, BATCH, WIDTH], np.float32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            rows = measured[number % 6]
            if is_slow:
                for row in rows:
                    statistics.update(row[None])
            else:
                statistics.update(rows)
            adapters, loss = step(adapters, fixed, statistics.normalized(rows))
            jax.block_until_ready(loss)
        clock.step_ended()
