"""JAX on a GPU; slow twice: a copy of the weights is kept on the host after each step, and Python makes a random key per group."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import loss_of as loss_of_rows
from scripts.real_runs.jax_training import numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import STEPS, StepClock

GROUPS, GROUP, FEATURES = sized(24, 4), sized(512, 4), sized(2048, 64)
rows = jnp.asarray(numbers(GROUPS, GROUP, FEATURES))


def loss_of(weights: Any, keys: Any, batch: Any) -> Any:
    """The loss of rows of random sizes, which each group draws with its own key."""
    sizes = jax.vmap(lambda key: 1 + 0.1 * jax.random.normal(key, [GROUP, 1]))(keys)
    return loss_of_rows(weights, jnp.reshape(batch * sizes, [-1, FEATURES]))


def moved(weights: Any, keys: Any, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, keys, batch)
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], loss


def keyed_and_moved(weights: Any, key: Any, batch: Any) -> Any:
    keys = jax.vmap(lambda group: jax.random.fold_in(key, group))(jnp.arange(GROUPS))
    return moved(weights, keys, batch)


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(moved if is_slow else keyed_and_moved, donate_argnums=0)
    step_keys = list(jax.random.split(jax.random.key(1), STEPS))
    state: list[Any] = [weights_of(FEATURES, 10), None]

    def train_step(number: int) -> Any:
        keys = step_keys[number]
        if is_slow:
            keys = jnp.stack([jax.random.fold_in(keys, group) for group in range(GROUPS)])
        state[0], loss = step(state[0], keys, rows)
        if is_slow:
            state[1] = jax.device_get(state[0])
        return loss

    run_steps(clock, train_step)
