"""JAX on a GPU whose memory is mostly free; slow: `jax.checkpoint` around each layer computes it again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import WIDTH, descent, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

rows = jnp.asarray(numbers(sized(8192, 32), WIDTH))


def layer(outputs: Any, weight: Any) -> Any:
    return jnp.tanh(outputs @ weight)


def step_through(layer_of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def loss_of(weights: Any, batch: Any) -> Any:
        outputs = batch
        for weight in weights:
            outputs = layer_of(outputs, weight)
        return jnp.mean(jnp.square(outputs - batch))

    return descent(loss_of)


keeping, recomputing = step_through(layer), step_through(jax.checkpoint(layer))


def train(is_slow: bool, clock: StepClock) -> None:
    step, state = recomputing if is_slow else keeping, [weights_of(WIDTH, 6)]

    def train_step(_: int) -> Any:
        state[0] = step(state[0], rows)
        return state[0]

    run_steps(clock, train_step)
