"""JAX: a small transformer learns to copy letters with Adam; slow: `jax_debug_nans` was left on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, LETTERS, WIDTH, HEADS, BLOCKS = 2, 24, 64, 256, 4, 4

rng = np.random.default_rng(41)


def matrix(*shape: int) -> Any:
    return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def block() -> dict[str, Any]:
    return {
        "attention": {"in": matrix(WIDTH, 3 * WIDTH), "out": matrix(WIDTH, WIDTH)},
        "mlp": {"up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH)},
        "scales": {"first": np.ones(WIDTH, np.float32), "second": np.ones(WIDTH, np.float32)},
    }


def initial() -> dict[str, Any]:
    return {
        "letters": matrix(LETTERS, WIDTH),
        "places": matrix(LENGTH, WIDTH),
        "blocks": [block() for _ in range(BLOCKS)],
    }


def normalized(rows: Any, scale: Any) -> Any:
    centred = rows - jnp.mean(rows, axis=-1, keepdims=True)
    return scale * centred / jnp.sqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5)


def attended(rows: Any, weights: Any) -> Any:
    parts = (rows @ weights["in"]).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
    queries, keys, values = jnp.moveaxis(parts, 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / np.sqrt(WIDTH // HEADS)
    scores = jnp.where(np.tri(LENGTH, dtype=bool), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), values)
    return mixed.reshape(BATCH, LENGTH, WIDTH) @ weights["out"]


def loss_of(params: Any, text: Any) -> Any:
    rows = params["letters"][text] + params["places"]
    for part in params["blocks"]:
        rows = rows + attended(normalized(rows, part["scales"]["first"]), part["attention"])
        hidden = normalized(rows, part["scales"]["second"]) @ part["mlp"]["up"]
        rows = rows + jax.nn.gelu(hidden) @ part["mlp"]["down"]
    scores = jax.nn.log_softmax(rows @ params["letters"].T)
    return -jnp.mean(jnp.take_along_axis(scores, text[..., None], axis=-1))


def adam_step(params: Any, means: Any, squares: Any, text: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(params, text)
    means = jax.tree.map(lambda mean, slope: 0.9 * mean + 0.1 * slope, means, slopes)
    squares = jax.tree.map(lambda old, slope: 0.99 * old + 0.01 * slope**2, squares, slopes)
    params = jax.tree.map(
        lambda value, mean, square: value - 1e-3 * mean / (jnp.sqrt(square) + 1e-8),
        params,
        means,
        squares,
    )
    return params, means, squares, loss


def train(is_slow: bool, clock: StepClock) -> None:
    # "The loss became NaN last week."
    jax.config.update("jax_debug_nans", is_slow)
    params = jax.device_put(initial())
    means, squares = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
    texts = rng.integers(0, LETTERS, [16, BATCH, LENGTH], np.int32)
    step = jax.jit(adam_step)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, means, squares, loss = step(params, means, squares, texts[number % len(texts)])
            loss.block_until_ready()
        clock.step_ended()
