"""JAX: a classifier of small pictures; slow: the gradient of each sample is taken by `vmap`, and then their mean, not the gradient of the mean loss."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, SIZES = 128, (1024, 768, 768, 10)

rng = np.random.default_rng(29)


def loss_of(weights: Any, row: Any, kind: Any) -> Any:
    hidden = row
    for weight in weights[:-1]:
        hidden = jax.nn.gelu(hidden @ weight)
    scores = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(scores, kind[..., None], axis=-1).mean()


def train(is_slow: bool, clock: StepClock) -> None:
    def update(weights: Any, rows: Any, kinds: Any) -> Any:
        if is_slow:
            each = jax.vmap(jax.grad(loss_of), in_axes=(None, 0, 0))(weights, rows, kinds)
            slopes = jax.tree.map(lambda slope: jnp.mean(slope, axis=0), each)
        else:
            slopes = jax.grad(loss_of)(weights, rows, kinds)
        norm = jnp.sqrt(sum(jnp.sum(slope**2) for slope in slopes))
        rate = 1e-2 / jnp.maximum(norm, 1.0)
        return [w - rate * slope for w, slope in zip(weights, slopes, strict=True)], norm

    step = jax.jit(update, donate_argnums=0)
    weights = [
        jnp.asarray(rng.standard_normal([one, other], np.float32) / np.float32(one**0.5))
        for one, other in pairwise(SIZES)
    ]
    rows = rng.standard_normal([6, BATCH, SIZES[0]], np.float32)
    kinds = rng.integers(0, SIZES[-1], [6, BATCH], np.int32)
    norms = []
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, norm = step(weights, rows[number % 6], kinds[number % 6])
            norms.append(float(norm))
        clock.step_ended()
