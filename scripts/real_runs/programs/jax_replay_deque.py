"""JAX: a value network learns from replayed transitions; slow: they are in a `deque`, from which `random.sample` draws each batch."""

from __future__ import annotations

import random
from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

COPIES, OBSERVED, ACTIONS, WIDTH = 16, 64, 8, 384
CAPACITY, BATCH = 200_000, 384

rng = np.random.default_rng(1)
mixing = (rng.standard_normal([OBSERVED, OBSERVED]) / 8).astype(np.float32)
pushes = rng.standard_normal([ACTIONS, OBSERVED]).astype(np.float32)


class Transition(NamedTuple):
    """What an agent saw, did, got and saw then."""

    seen: Any
    action: Any
    reward: Any
    after: Any


class DequeReplay:
    """Transitions in the order in which they came; the oldest goes."""

    def __init__(self) -> None:
        self._memory: deque[Transition] = deque(maxlen=CAPACITY)

    def add(self, many: Transition) -> None:
        self._memory.extend(Transition(*row) for row in zip(*many, strict=True))

    def sample(self) -> Transition:
        drawn = random.sample(self._memory, BATCH)
        return Transition(*(np.stack(column) for column in zip(*drawn, strict=True)))


class RingReplay:
    """Transitions in one array for each field."""

    def __init__(self) -> None:
        self._fields = Transition(
            np.zeros([CAPACITY, OBSERVED], np.float32),
            np.zeros([CAPACITY], np.int64),
            np.zeros([CAPACITY], np.float32),
            np.zeros([CAPACITY, OBSERVED], np.float32),
        )
        self._count = 0

    def add(self, many: Transition) -> None:
        places = (self._count + np.arange(len(many.action))) % CAPACITY
        for field, values in zip(self._fields, many, strict=True):
            field[places] = values
        self._count += len(places)

    def sample(self) -> Transition:
        places = rng.integers(0, min(self._count, CAPACITY), BATCH)
        return Transition(*(field[places] for field in self._fields))


def values_of(weights: Any, seen: Any) -> Any:
    hidden = seen
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    return hidden @ weights[-1]


def act(weights: Any, seen: Any) -> Any:
    return jnp.argmax(values_of(weights, seen), axis=1)


def loss_of(weights: Any, target: Any, batch: Transition) -> Any:
    values = jnp.take_along_axis(values_of(weights, batch.seen), batch.action[:, None], axis=1)
    best = jnp.max(values_of(target, batch.after), axis=1)
    return jnp.mean(optimistic(values[:, 0] - batch.reward - 0.97 * best))


def optimistic(errors: Any) -> Any:
    return jnp.where(jnp.abs(errors) < 1, jnp.square(errors) / 2, jnp.abs(errors) - 0.5)


def learn(weights: Any, target: Any, batch: Transition) -> Any:
    slopes = jax.grad(loss_of)(weights, target, batch)
    weights = [weight - 1e-3 * slope for weight, slope in zip(weights, slopes, strict=True)]
    return weights, [0.99 * old + 0.01 * new for old, new in zip(target, weights, strict=True)]


def moved(seen: Any, action: Any) -> tuple[Any, Any]:
    after = np.tanh(seen @ mixing + pushes[action])
    return after, -np.abs(after).mean(axis=1)


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = [OBSERVED, WIDTH, WIDTH, WIDTH, ACTIONS]
    shapes = pairwise(sizes)
    weights: Any = [jnp.asarray(rng.standard_normal(s), jnp.float32) / 30 for s in shapes]
    target, replay = weights, DequeReplay() if is_slow else RingReplay()
    choose, update = jax.jit(act), jax.jit(learn)
    past = rng.standard_normal([CAPACITY, OBSERVED]).astype(np.float32)
    actions = rng.integers(0, ACTIONS, CAPACITY)
    replay.add(Transition(past, actions, np.zeros(CAPACITY, np.float32), past))
    seen = past[:COPIES]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("learn", step_num=number):
            action = np.asarray(choose(weights, seen))
            after, reward = moved(seen, action)
            replay.add(Transition(seen, action, reward, after))
            weights, target = jax.block_until_ready(update(weights, target, replay.sample()))
            seen = after
        clock.step_ended()
