"""JAX on one device: a network estimates how long a part will last from many sensors, and its slope by each sensor is kept small;
slow: the slopes are taken by `jacfwd`, a pass for each sensor, not by `jacrev`, a pass for each output.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SLOPES, SENSORS, UNITS, OUTPUTS = 2048, 64, 32, 256, 2
random = np.random.default_rng(1)


def train(is_slow: bool, clock: StepClock) -> None:
    jacobian = jax.jacfwd if is_slow else jax.jacrev

    def estimate(weights: Any, row: Any) -> Any:
        first, second, last = weights
        return jnp.tanh(jnp.tanh(row @ first) @ second) @ last

    def loss_of(weights: Any, rows: Any, wanted: Any) -> Any:
        misses = jnp.mean((estimate(weights, rows) - wanted) ** 2)
        slopes = jax.vmap(lambda row: jacobian(estimate, 1)(weights, row))(rows[:SLOPES])
        return misses + 1e-2 * jnp.mean(jnp.sum(slopes**2, (1, 2)))

    def update(weights: Any, rows: Any, wanted: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, rows, wanted)
        return [w - 1e-2 * g for w, g in zip(weights, gradients, strict=True)], loss

    compiled_update = jax.jit(update)
    shapes = [(SENSORS, UNITS), (UNITS, UNITS), (UNITS, OUTPUTS)]
    weights = [jnp.asarray(random.standard_normal(s) / s[0] ** 0.5, jnp.float32) for s in shapes]
    batches = [
        (
            jnp.asarray(random.standard_normal((BATCH, SENSORS)), jnp.float32),
            jnp.asarray(random.standard_normal((BATCH, OUTPUTS)), jnp.float32),
        )
        for _ in range(4)
    ]
    before = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = compiled_update(weights, *batches[number % 4])
            jax.block_until_ready(before)
        before = loss
        clock.step_ended()
