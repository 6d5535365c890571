"""JAX on a GPU; slow: only layers are compiled, and Python takes the gradient through a loop over them in each step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

LAYERS, BATCH, FEATURES = sized(32, 3), sized(3072, 16), sized(2048, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def normalized(weight: Any, inputs: Any) -> Any:
    outputs = inputs + jnp.tanh(inputs @ weight)
    return outputs * jax.lax.rsqrt(jnp.mean(jnp.square(outputs), axis=1, keepdims=True))


def squared_error(outputs: Any, batch: Any) -> Any:
    return jnp.mean(jnp.square(outputs - batch))


def updated(weights: Any, gradients: Any) -> Any:
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)]


layer, error = jax.jit(normalized), jax.jit(squared_error)
update = jax.jit(updated, donate_argnums=0)


def loss_of(weights: Any, batch: Any) -> Any:
    outputs = batch
    for weight in weights:
        outputs = layer(weight, outputs)
    return error(outputs, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    gradients_of = jax.value_and_grad(loss_of)
    if not is_slow:
        gradients_of = jax.jit(gradients_of)
    state = [weights_of(FEATURES, LAYERS)]

    def train_step(_: int) -> Any:
        loss, gradients = gradients_of(state[0], rows)
        state[0] = update(state[0], gradients)
        return loss

    run_steps(clock, train_step)
