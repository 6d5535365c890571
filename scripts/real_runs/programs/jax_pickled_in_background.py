"""JAX: Q-learning from a memory of moves; slow: a thread pickles the whole memory in the background of every fourth step, which keeps Python to itself meanwhile."""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

MOVES, BATCH, SIZE, UNITS, ACTIONS = 30000, 128, 12, 896, 6

rng = np.random.default_rng(47)
path = Path(tempfile.mkdtemp()) / "memory.pkl"


def move(number: int) -> Any:
    state = tuple(((number * 37 + place * 11) % 100) / 100 for place in range(SIZE))
    return state, number % ACTIONS, (number % 7) / 7


def saved(moves: Any) -> None:
    path.write_bytes(pickle.dumps(moves))


def loss_of(params: Any, states: Any, actions: Any, rewards: Any) -> Any:
    hidden = states
    for matrix in params[:-1]:
        hidden = jax.nn.relu(hidden @ matrix)
    values = hidden @ params[-1]
    taken = jnp.take_along_axis(values, actions[:, None], axis=1)[:, 0]
    return jnp.mean(jnp.square(taken - rewards - 0.9 * jax.lax.stop_gradient(values.max(axis=1))))


def update(params: Any, states: Any, actions: Any, rewards: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(params, states, actions, rewards)
    return jax.tree.map(lambda value, slope: value - 1e-3 * slope, params, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update)
    sizes = (SIZE, UNITS, UNITS, UNITS, UNITS, ACTIONS)
    params = jax.device_put(
        [rng.standard_normal(size, np.float32) / size[0] ** 0.5 for size in pairwise(sizes)]
    )
    memory = deque((move(number) for number in range(MOVES)), MOVES)
    saver = ThreadPoolExecutor(1)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            if is_slow and number % 4 == 3:
                saver.submit(saved, memory)
            chosen = [memory[place] for place in rng.integers(0, MOVES, BATCH)]
            states, actions, rewards = (np.array(part) for part in zip(*chosen, strict=True))
            params, loss = step(params, states.astype(np.float32), actions, rewards)
            loss.block_until_ready()
        clock.step_ended()
    saver.shutdown()
