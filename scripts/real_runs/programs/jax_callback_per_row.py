"""JAX: attention by a projection that NumPy computes, with a gradient of its own; slow: `vmap` calls NumPy for one row after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, WIDTH, PLACES, LAYERS = 64, 640, 128, 6

rng = np.random.default_rng(3)


def onto_simplex(scores: Any) -> Any:
    """The nearest point whose parts are shares of one, of each row."""
    scores = np.asarray(scores)
    ordered = -np.sort(-scores, axis=-1)
    above = np.cumsum(ordered, axis=-1) - 1
    counts = np.sum(ordered * np.arange(1, scores.shape[-1] + 1) > above, axis=-1, keepdims=True)
    limit = np.take_along_axis(above, counts - 1, axis=-1) / counts
    return np.maximum(scores - limit, 0).astype(np.float32)


def sparsemax_of(method: str) -> Any:
    def projected(scores: Any) -> Any:
        shape = jax.ShapeDtypeStruct(scores.shape, scores.dtype)
        return jax.pure_callback(onto_simplex, shape, scores, vmap_method=method)

    sparsemax: Any = jax.custom_vjp(projected)

    def forward(scores: Any) -> Any:
        shares = sparsemax(scores)
        return shares, shares > 0

    def backward(is_in: Any, slope: Any) -> Any:
        mean = jnp.sum(slope * is_in) / jnp.maximum(jnp.sum(is_in), 1)
        return (is_in * (slope - mean),)

    sparsemax.defvjp(forward, backward)
    return sparsemax


def train(is_slow: bool, clock: StepClock) -> None:
    sparsemax = sparsemax_of("sequential" if is_slow else "broadcast_all")

    def outputs_of(model: Any, row: Any) -> Any:
        hidden = row
        for weight in model["layers"]:
            hidden = jnp.tanh(hidden @ weight)
        return sparsemax(hidden @ model["keys"].T) @ model["keys"]

    def loss_of(model: Any, rows: Any) -> Any:
        outputs = jax.vmap(outputs_of, in_axes=(None, 0))(model, rows)
        return jnp.mean(jnp.square(outputs - rows))

    def update(model: Any, rows: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(model, rows)
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, model, slopes), loss

    model: Any = {
        "layers": list((rng.standard_normal([LAYERS, WIDTH, WIDTH]) / 20).astype(np.float32)),
        "keys": rng.standard_normal([PLACES, WIDTH]).astype(np.float32),
    }
    batches = rng.standard_normal([STEPS, BATCH, WIDTH]).astype(np.float32)
    losses, step = [], jax.jit(update)
    for rows in batches:
        model, loss = step(model, rows)
        losses.append(float(loss))
        clock.step_ended()
