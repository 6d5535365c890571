"""JAX on a GPU, layers by `scan`; slow: the learning rate, new after every fourth step, is a static argument of the update."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import WIDTH, numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

rows = jnp.asarray(numbers(sized(2048, 32), WIDTH))


def loss_of(weights: Any, batch: Any) -> Any:
    outputs, _ = jax.lax.scan(
        lambda carry, weight: (jnp.tanh(carry @ weight), None), batch, weights
    )
    return jnp.mean(jnp.square(outputs - batch))


def train(is_slow: bool, clock: StepClock) -> None:
    # A function of this run alone: what JAX has compiled for another one it would use again.
    def updated(weights: Any, gradients: Any, rate: Any) -> Any:
        return weights - rate * gradients

    gradients_of = jax.jit(jax.value_and_grad(loss_of))
    update = jax.jit(updated, static_argnames="rate" if is_slow else None, donate_argnums=0)
    state = [jnp.stack(weights_of(WIDTH, 4))]

    def train_step(number: int) -> Any:
        loss, gradients = gradients_of(state[0], rows)
        state[0] = update(state[0], gradients, rate=1e-3 * 0.9 ** (number // 4))
        return loss

    run_steps(clock, train_step)
