"""JAX on a GPU that holds the data; slow: each step shuffles the numbers of all samples to draw its batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import WIDTH, run_steps, sized, update, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

SAMPLES, FEATURES, BATCH = sized(16_000_000, 4096), sized(32, 8), sized(4096, 32)
samples = jax.random.normal(jax.random.key(1), [SAMPLES, FEATURES])


def trained(weights: Any, data: Any, chosen: Any) -> Any:
    return update(weights, jnp.tile(data[chosen], (1, WIDTH // FEATURES)))


def trained_on_random(weights: Any, data: Any, key: Any) -> Any:
    return trained(weights, data, jax.random.permutation(key, SAMPLES)[:BATCH])


def trained_on_next(weights: Any, data: Any, order: Any, start: Any) -> Any:
    return trained(weights, data, jax.lax.dynamic_slice(order, [start], [BATCH]))


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(trained_on_random if is_slow else trained_on_next, donate_argnums=0)
    keys = list(jax.random.split(jax.random.key(2), STEPS))
    order = jax.random.permutation(keys[0], SAMPLES)
    starts = [jnp.int32(number * BATCH % (SAMPLES - BATCH)) for number in range(STEPS)]
    state = [weights_of(WIDTH, 8)]

    def train_step(number: int) -> Any:
        choice = (keys[number],) if is_slow else (order, starts[number])
        state[0], loss = step(state[0], samples, *choice)
        return loss

    run_steps(clock, train_step)
