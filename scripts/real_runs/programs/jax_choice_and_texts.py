"""Values of moves are learnt from a memory of them; slow: the memory is sorted for each batch, and unseen log lines are formatted."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp

from scripts.real_runs.jax_training import numbers, run_steps
from scripts.real_runs.step_clock import StepClock

MEMORY, SIGHT, MOVES, BATCH, UNITS = 24_000, 24, 6, 384, 512

logger = logging.getLogger("moves")
logger.setLevel(logging.INFO)


def values(weights: Any, seen: Any) -> Any:
    hidden = seen
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    return hidden @ weights[-1]


def loss_of(weights: Any, target: Any, batch: Any) -> Any:
    seen, moves, rewards, seen_next = batch
    best = rewards + 0.99 * jnp.max(values(target, seen_next), axis=1)
    guesses = jnp.take_along_axis(values(weights, seen), moves[:, None], axis=1)[:, 0]
    return jnp.mean(jnp.square(guesses - jax.lax.stop_gradient(best)))


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def update(weights: Any, target: Any, batch: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(weights, target, batch)
    return [w - 1e-3 * g for w, g in zip(weights, gradients, strict=True)], loss


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def drawn_apart(key: Any, memory: Any) -> Any:
    """Moves of the memory, none twice."""
    places = jax.random.choice(key, MEMORY, (BATCH,), replace=False)
    return [part[places] for part in memory]


@jax.jit  # type: ignore[untyped-decorator]  # JAX has no types here
def drawn(key: Any, memory: Any) -> Any:
    """Moves of the memory."""
    places = jax.random.randint(key, (BATCH,), 0, MEMORY)
    return [part[places] for part in memory]


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = [(SIGHT, UNITS), (UNITS, UNITS), (UNITS, UNITS), (UNITS, UNITS), (UNITS, MOVES)]
    weights = [jnp.asarray(numbers(*shape) / shape[0] ** 0.5) for shape in shapes]
    target = [jnp.copy(weight) for weight in weights]
    memory = [
        jnp.asarray(numbers(MEMORY, SIGHT)),
        jnp.asarray(abs(numbers(MEMORY)).astype("int32") % MOVES),
        jnp.asarray(numbers(MEMORY)),
        jnp.asarray(numbers(MEMORY, SIGHT, seed=2)),
    ]
    state = {"weights": weights, "key": jax.random.key(0)}
    draw = drawn_apart if is_slow else drawn

    def step(number: int) -> Any:
        batch = draw(jax.random.fold_in(state["key"], number), memory)
        state["weights"], loss = update(state["weights"], target, batch)
        if is_slow:
            logger.debug(f"step {number}: weights {state['weights']}, batch {batch[0]}")  # noqa: G004 (the slowdown)
        else:
            logger.debug("step %d: weights %s, batch %s", number, state["weights"], batch[0])
        return loss

    run_steps(clock, step)
