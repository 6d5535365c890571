"""JAX: an autoencoder learns by Muon; slow: tall gradients are not transposed, so that they are made orthogonal along their longer side."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LONG, SHORT, PAIRS = 2560, 512, 128, 2

rng = np.random.default_rng(61)


def orthogonal(slope: Any, *, is_turned: bool) -> Any:
    """The matrix with the same directions whose singular values are all near one, by five steps of Newton and Schulz."""
    is_tall = slope.shape[0] > slope.shape[1]
    rows = slope.T if is_tall and is_turned else slope
    rows = rows / (jnp.linalg.norm(rows) + 1e-7)
    for _ in range(5):
        products = rows @ rows.T
        rows = 3.4445 * rows + (2.0315 * products @ products - 4.775 * products) @ rows
    return rows.T if is_tall and is_turned else rows


def loss_of(params: Any, rows: Any) -> Any:
    outputs = rows
    for pair in params:
        outputs = jax.nn.relu(outputs @ pair["narrow"]) @ pair["wide"] + pair["bias"]
    return jnp.mean(jnp.square(outputs - rows))


def train(is_slow: bool, clock: StepClock) -> None:
    def moved(value: Any, mean: Any) -> Any:
        if value.ndim < 2:
            return value - 1e-3 * mean
        return value - 2e-3 * orthogonal(mean, is_turned=not is_slow)

    def update(params: Any, means: Any, rows: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(params, rows)
        means = jax.tree.map(lambda mean, slope: 0.95 * mean + slope, means, slopes)
        return jax.tree.map(moved, params, means), means, loss

    step = jax.jit(update)
    params = [
        {
            "narrow": jnp.asarray(rng.standard_normal([LONG, SHORT]) / 20, jnp.float32),
            "wide": jnp.asarray(rng.standard_normal([SHORT, LONG]) / 20, jnp.float32),
            "bias": jnp.zeros(LONG),
        }
        for _ in range(PAIRS)
    ]
    means = jax.tree.map(jnp.zeros_like, params)
    data = rng.standard_normal([4, BATCH, LONG]).astype(np.float32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, means, loss = step(params, means, data[number % len(data)])
            jax.block_until_ready((params, loss))
        clock.step_ended()
