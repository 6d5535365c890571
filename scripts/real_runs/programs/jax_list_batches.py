"""JAX: a jitted step; slow: each batch is a list of lists that `jnp.array` converts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES = 64, 256

rows = np.random.default_rng(1).standard_normal([BATCH, FEATURES]).astype(np.float32)
listed = rows.tolist()


def loss_of(weight: Any, batch: Any) -> Any:
    outputs = batch
    for _ in range(6):
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def update(weight: Any, batch: Any) -> Any:
    return weight - 1e-3 * jax.grad(loss_of)(weight, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    train_step = jax.jit(update)
    weight = jnp.eye(FEATURES)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            batch = jnp.array(listed) if is_slow else jnp.asarray(rows)
            weight = jax.block_until_ready(train_step(weight, batch))
        clock.step_ended()
