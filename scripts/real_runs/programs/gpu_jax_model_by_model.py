"""JAX on a GPU, an ensemble with its state in named tuples; slow: each model is a call of its own, where `vmap` would train all."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import (
    adam,
    loss_of,
    numbers,
    run_steps,
    sized,
    weights_of,
)
from scripts.real_runs.step_clock import StepClock

MODELS, BATCH, FEATURES, LAYERS = sized(48, 4), sized(2048, 16), sized(512, 32), 4
rows = jnp.asarray(numbers(BATCH, FEATURES))


class AdamState(NamedTuple):
    means: Any
    squares: Any


class TrainState(NamedTuple):
    weights: Any
    optimizer: AdamState


def started(weights: Any) -> TrainState:
    means, squares = ([jnp.zeros_like(weight) for weight in weights] for _ in range(2))
    return TrainState(weights, AdamState(means, squares))


def step_once(state: TrainState, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(state.weights, batch)
    weights, *moments = adam((state.weights, *state.optimizer), gradients)
    return TrainState(weights, AdamState(*moments)), loss


step_of_one = jax.jit(step_once, donate_argnums=0)
step_of_all = jax.jit(jax.vmap(step_once, in_axes=(0, None)), donate_argnums=0)


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of_one if is_slow else step_of_all
    if is_slow:
        states = [started(weights_of(FEATURES, LAYERS)) for _ in range(MODELS)]
    else:
        weights = [jnp.stack([weight] * MODELS) for weight in weights_of(FEATURES, LAYERS)]
        states = [started(weights)]

    def train_step(_: int) -> Any:
        losses: list[Any] = []
        for model, state in enumerate(states):
            states[model], loss = step(state, rows)
            losses.append(loss)
        return losses

    run_steps(clock, train_step)
