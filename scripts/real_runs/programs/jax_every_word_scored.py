"""JAX: a network guesses the words that were hidden in sentences; slow: all words of the language are scored at every place, not where one is hidden."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LENGTH, HIDDEN, WORDS, WIDTH, HEADS, LAYERS = 16, 48, 7, 3000, 128, 4, 3

rng = np.random.default_rng(71)


def attention(layer: Any, states: Any) -> Any:
    asked, keys, values = jnp.split(states @ layer["all"], 3, axis=-1)
    shape = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
    mixed = jax.nn.dot_product_attention(*(part.reshape(shape) for part in (asked, keys, values)))
    return mixed.reshape(states.shape) @ layer["out"]


def encoded(params: Any, words: Any) -> Any:
    states = params["table"][words]
    for layer in params["layers"]:
        states = states + attention(layer, jax.nn.standardize(states))
        states = states + jax.nn.gelu(jax.nn.standardize(states) @ layer["up"]) @ layer["down"]
    return states


def surprise(scores: Any, words: Any) -> Any:
    chosen = jnp.take_along_axis(scores, words[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - chosen


def loss_of(params: Any, words: Any, places: Any, is_slow: bool) -> Any:
    """How surprising the hidden words are; `places`: where they are hidden in each sentence."""
    rows = jnp.arange(BATCH)[:, None]
    states = encoded(params, words.at[rows, places].set(0))
    if is_slow:
        hidden = jnp.zeros([BATCH, LENGTH]).at[rows, places].set(1.0)
        losses = surprise(states @ params["head"], words)
        return jnp.sum(losses * hidden) / jnp.sum(hidden)
    return jnp.mean(surprise(states[rows, places] @ params["head"], words[rows, places]))


def weight(*shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)


def train(is_slow: bool, clock: StepClock) -> None:
    def update(params: Any, words: Any, places: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(params, words, places, is_slow)
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes), loss

    step = jax.jit(update, donate_argnums=0)
    layers = [
        {
            "all": weight(WIDTH, 3 * WIDTH),
            "out": weight(WIDTH, WIDTH),
            "up": weight(WIDTH, 4 * WIDTH),
            "down": weight(4 * WIDTH, WIDTH),
        }
        for _ in range(LAYERS)
    ]
    params = {"table": weight(WORDS, WIDTH), "layers": layers, "head": weight(WIDTH, WORDS)}
    batches = [
        jax.device_put(
            (
                rng.integers(1, WORDS, [BATCH, LENGTH]),
                np.stack([rng.permutation(LENGTH)[:HIDDEN] for _ in range(BATCH)]),
            )
        )
        for _ in range(8)
    ]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, *batches[number % 8])
            jax.block_until_ready(loss)
        clock.step_ended()
