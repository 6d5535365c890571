"""JAX: gradients by `jit`; slow: Adam updates the weights op by op outside of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import adam
from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, FEATURES, LAYERS = 64, 160, 16

rng = np.random.default_rng(1)
rows = jnp.asarray(rng.standard_normal([BATCH, FEATURES]).astype(np.float32))


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return jnp.mean(jnp.square(outputs - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    gradients_of, adam_step = jax.jit(jax.grad(loss_of)), adam if is_slow else jax.jit(adam)
    weights = [jnp.asarray(rng.standard_normal([FEATURES] * 2) / 12) for _ in range(LAYERS)]
    zeros = [jnp.zeros_like(weight) for weight in weights]
    state: Any = (weights, zeros, zeros)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state = jax.block_until_ready(adam_step(state, gradients_of(state[0], rows)))
        clock.step_ended()
