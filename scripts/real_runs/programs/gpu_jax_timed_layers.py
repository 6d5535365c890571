"""JAX on a GPU, each layer trained by a call of its own; slow: Python waits for each call, to know how long it takes."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

LAYERS, BATCH, FEATURES = sized(40, 4), sized(1536, 16), sized(2048, 64)
rows = jnp.asarray(numbers(BATCH, FEATURES))


def loss_of(weight: Any, inputs: Any) -> Any:
    """How far a layer and its transpose are from giving back the input."""
    outputs = jnp.tanh(inputs @ weight)
    return jnp.mean(jnp.square(outputs @ weight.T - inputs)), outputs


def trained(weight: Any, inputs: Any) -> Any:
    gradient, outputs = jax.grad(loss_of, has_aux=True)(weight, inputs)
    return weight - 1e-3 * gradient, outputs


train_layer = jax.jit(trained, donate_argnums=0)


def train(is_slow: bool, clock: StepClock) -> None:
    weights = weights_of(FEATURES, LAYERS)
    seconds = [0.0] * LAYERS

    def train_step(_: int) -> Any:
        outputs = rows
        for layer in range(LAYERS):
            start = time.perf_counter()
            weights[layer], outputs = train_layer(weights[layer], outputs)
            if is_slow:
                jax.block_until_ready(outputs)
                seconds[layer] += time.perf_counter() - start
        return outputs

    run_steps(clock, train_step)
