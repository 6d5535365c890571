"""JAX on a GPU, learning from an environment; slow twice: the environment moves in Python, place by place, and `scan` sums the returns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.jax_training import numbers, run_steps, sized, weights_of
from scripts.real_runs.step_clock import StepClock

PLACES, FEATURES, HISTORY = sized(32_768, 32), sized(2048, 64), sized(256, 8)
CAPACITY, DISCOUNT = 100.0, 0.99
demand = np.abs(10 * numbers(PLACES)).round(1)
scale = jnp.asarray(numbers(FEATURES))


def returns_by_scan(rewards: Any) -> Any:
    def add(later: Any, reward: Any) -> Any:
        total = reward + DISCOUNT * later
        return total, total

    return jax.lax.scan(add, jnp.zeros(PLACES), rewards, reverse=True)[1]


def returns_at_once(rewards: Any) -> Any:
    steps = jnp.arange(HISTORY)
    until = steps - steps[:, None]
    return jnp.where(until < 0, 0.0, DISCOUNT**until) @ rewards


def orders_of(weights: Any, levels: Any) -> Any:
    outputs = levels[:, None] / CAPACITY * scale
    for weight in weights:
        outputs = jnp.tanh(outputs @ weight)
    return CAPACITY * jnp.square(jnp.mean(outputs, axis=1))


def moved(levels: Any, orders: Any) -> Any:
    sold = jnp.minimum(levels, demand)
    levels = jnp.minimum(levels - sold + orders, CAPACITY)
    return levels, 3 * sold - 0.1 * levels


def moved_by_python(levels: list[float], orders: list[float]) -> tuple[list[float], list[float]]:
    after, rewards = [], []
    for level, order, wanted in zip(levels, orders, demand.tolist(), strict=True):
        sold = min(level, wanted)
        level = min(level - sold + order, CAPACITY)
        after.append(level)
        rewards.append(3 * sold - 0.1 * level)
    return after, rewards


def step_of(returns_of: Any) -> Any:
    def loss_of(weights: Any, levels: Any, rewards: Any) -> Any:
        orders = orders_of(weights, levels)
        return jnp.mean(jnp.square(orders - jnp.mean(returns_of(rewards), axis=0))), orders

    def step_once(weights: Any, levels: Any, rewards: Any) -> Any:
        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, orders), gradients = gradient_of(weights, levels, rewards)
        return [w - 1e-6 * g for w, g in zip(weights, gradients, strict=True)], orders, loss

    return jax.jit(step_once, donate_argnums=0)


def kept(rewards: Any, newest: Any) -> Any:
    return jnp.concatenate([rewards[1:], newest[None]])


steps = {True: step_of(returns_by_scan), False: step_of(returns_at_once)}
move, keep = jax.jit(moved), jax.jit(kept)


def train(is_slow: bool, clock: StepClock) -> None:
    step = steps[is_slow]
    weights, levels = weights_of(FEATURES, 4), jnp.full(PLACES, CAPACITY / 2)
    state: list[Any] = [weights, levels, jnp.zeros([HISTORY, PLACES])]
    levels_on_host = np.asarray(levels).tolist()

    def train_step(_: int) -> Any:
        nonlocal levels_on_host
        weights, levels, rewards = state
        newest: Any
        weights, orders, loss = step(weights, levels, rewards)
        if is_slow:
            levels_on_host, earned = moved_by_python(levels_on_host, np.asarray(orders).tolist())
            levels, newest = np.array(levels_on_host, "float32"), np.array(earned, "float32")
        else:
            levels, newest = move(levels, orders)
        state[:] = weights, levels, keep(rewards, newest)
        return loss

    run_steps(clock, train_step)
