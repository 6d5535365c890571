"""JAX: prices are guessed from features that some rows lack; slow: a batch leaves out those that none of its rows has, so that the step is compiled for each set of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WIDTH, LAYERS, APART = 1536, 384, 2, 12
FEATURES = ("rooms", "age", "floor", "garden", "garage", "lift", "balcony", "view", "heating")
SELDOM = FEATURES[4:]

rng = np.random.default_rng(43)


def drawn(number: int) -> dict[str, Any]:
    """A batch of rows; of every twelfth, none has some of the features."""
    lacks = number // APART if number % APART == 0 else 0
    return {
        name: np.zeros(BATCH, np.float32)
        if name in SELDOM and lacks >> SELDOM.index(name) & 1
        else rng.standard_normal(BATCH).astype(np.float32)
        for name in FEATURES
    }


def loss_of(weights: Any, rows: dict[str, Any], prices: Any) -> Any:
    hidden = sum(jnp.tanh(value[:, None] * weights[name]) for name, value in rows.items())
    for kernel in weights["kernels"]:
        hidden = hidden + jax.nn.gelu(hidden @ kernel)
    return jnp.mean(jnp.square(hidden @ weights["out"] - prices))


def train(is_slow: bool, clock: StepClock) -> None:
    @jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
    def update(weights: Any, rows: Any, prices: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, rows, prices)
        return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, weights, slopes), loss

    weights: dict[str, Any] = {
        name: jnp.asarray(rng.standard_normal(WIDTH).astype(np.float32)) for name in FEATURES
    }
    kernels = rng.standard_normal([LAYERS, WIDTH, WIDTH], np.float32) / np.float32(40)
    weights["kernels"] = [jnp.asarray(kernel) for kernel in kernels]
    weights["out"] = jnp.zeros(WIDTH)
    batches = [drawn(number) for number in range(STEPS)]
    prices = rng.standard_normal(BATCH).astype(np.float32)
    for number, batch in enumerate(batches):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            present = {name: value for name, value in batch.items() if value.any() or not is_slow}
            weights, loss = update(weights, present, prices)
            jax.block_until_ready(loss)
        clock.step_ended()
