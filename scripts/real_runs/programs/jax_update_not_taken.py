"""JAX: gradients of eight calls are summed before an update; slow: Adam computes the update in each call, and `where` takes it in the eighth."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

CALLS, BATCH, WIDTH, LAYERS = 8, 48, 1024, 3

rng = np.random.default_rng(53)


def loss_of(params: Any, rows: Any) -> Any:
    hidden = rows
    for layer in params:
        hidden = hidden + jax.nn.gelu(hidden @ layer["kernel"] + layer["bias"])
    return jnp.mean(jnp.square(hidden - 1.1 * rows))


def adam(params: Any, moments: Any, slopes: Any) -> tuple[Any, Any]:
    means = jax.tree.map(lambda mean, slope: 0.9 * mean + 0.1 * slope, moments["mean"], slopes)
    squares = jax.tree.map(
        lambda square, slope: 0.99 * square + 0.01 * slope * slope, moments["square"], slopes
    )
    params = jax.tree.map(
        lambda value, mean, square: value - 1e-4 * mean / (jnp.sqrt(square) + 1e-8),
        params,
        means,
        squares,
    )
    return params, {"mean": means, "square": squares}


def chosen(is_due: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda one, other: jnp.where(is_due, one, other), new, old)


def updated(state: Any, sums: Any, is_due: Any, is_slow: bool) -> Any:
    """The state after a call: changed where an update is due."""

    def change(state: Any, sums: Any) -> Any:
        means = jax.tree.map(lambda total: total / CALLS, sums)
        params, moments = state
        return (*adam(params, moments, means), jax.tree.map(jnp.zeros_like, sums))

    if is_slow:
        return chosen(is_due, change(state, sums), (*state, sums))
    return jax.lax.cond(is_due, change, lambda state, sums: (*state, sums), state, sums)


def train(is_slow: bool, clock: StepClock) -> None:
    def step(carried: Any, rows: Any) -> Any:
        params, moments, sums, count = carried
        loss, slopes = jax.value_and_grad(loss_of)(params, rows)
        sums = jax.tree.map(jnp.add, sums, slopes)
        is_due = (count + 1) % CALLS == 0
        return (*updated((params, moments), sums, is_due, is_slow), count + 1), loss

    compiled = jax.jit(step, donate_argnums=0)
    params = [
        {
            "kernel": jnp.asarray(rng.standard_normal([WIDTH, WIDTH]) / 99, jnp.float32),
            "bias": jnp.zeros(WIDTH),
        }
        for _ in range(LAYERS)
    ]

    def zeros() -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    carried = (params, {"mean": zeros(), "square": zeros()}, zeros(), jnp.int32(0))
    rows = rng.standard_normal([8, BATCH, WIDTH], np.float32)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            carried, loss = compiled(carried, rows[number % 8])
            jax.block_until_ready(loss)
        clock.step_ended()
