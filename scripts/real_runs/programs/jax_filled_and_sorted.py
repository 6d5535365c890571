"""JAX: a model of the next click of a session; slow twice: each batch is filled session by session with `at`, which copies it, and all gradients are sorted to clip them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, LONGEST, PAGES, WIDTH, LAYERS, LARGE = 32, 72, 400, 48, 3, 0.999

rng = np.random.default_rng(47)
lengths = rng.choice([LONGEST // 2, LONGEST], BATCH * 4)
sessions = [rng.integers(1, PAGES, length, np.int32) for length in lengths]


def filled(chosen: Any, is_slow: bool) -> Any:
    """Sessions as rows of one array, with zeros behind."""
    if is_slow:
        clicks = jnp.zeros([BATCH, LONGEST], jnp.int32)
        for row, session in enumerate(chosen):
            clicks = clicks.at[row, : len(session)].set(session)
        return clicks
    rows = np.zeros([BATCH, LONGEST], np.int32)
    for row, session in enumerate(chosen):
        rows[row, : len(session)] = session
    return rows


def loss_of(weights: Any, clicks: Any) -> Any:
    hidden = weights["table"][clicks[:, :-1]]
    causal = jnp.tril(jnp.ones([LONGEST - 1, LONGEST - 1], bool))
    for layer in weights["layers"]:
        asked, known, told = (hidden @ layer[name] for name in ("asked", "known", "told"))
        near = jnp.where(causal, asked @ known.mT / WIDTH**0.5, -jnp.inf)
        hidden = hidden + jax.nn.softmax(near) @ told
        hidden = hidden + jax.nn.gelu(hidden @ layer["wide"]) @ layer["wide"].T
    scores = jax.nn.log_softmax(hidden @ weights["table"].T)
    told = jnp.take_along_axis(scores, clicks[:, 1:, None], axis=-1)[..., 0]
    return -jnp.mean(told * (clicks[:, 1:] > 0))


def clipped(slopes: Any, is_slow: bool) -> Any:
    if is_slow:
        sizes = jnp.concatenate([jnp.abs(slope).ravel() for slope in jax.tree.leaves(slopes)])
        limit = jnp.quantile(sizes, LARGE)
        return jax.tree.map(lambda slope: jnp.clip(slope, -limit, limit), slopes)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(slope)) for slope in jax.tree.leaves(slopes)))
    return jax.tree.map(lambda slope: slope / jnp.maximum(norm, 1.0), slopes)


def train(is_slow: bool, clock: StepClock) -> None:
    def random(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape, np.float32) * np.float32(0.05))

    @jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
    def update(weights: Any, clicks: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, clicks)
        slopes = clipped(slopes, is_slow)
        return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes), loss

    layers = [
        {"wide": random(WIDTH, 2 * WIDTH)}
        | {name: random(WIDTH, WIDTH) for name in ("asked", "known", "told")}
        for _ in range(LAYERS)
    ]
    weights = {"table": random(PAGES, WIDTH), "layers": layers}
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            start = number % 4 * BATCH
            clicks = filled(sessions[start : start + BATCH], is_slow)
            weights, loss = update(weights, clicks)
            jax.block_until_ready(loss)
        clock.step_ended()
