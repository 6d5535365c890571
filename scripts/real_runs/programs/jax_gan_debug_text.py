"""JAX: a generator and a critic; slow: the message of a debug log that is off is worded all the same, from all gradients."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, NOISE, POINTS = 192, 64, 256

rng = np.random.default_rng(23)
log = logging.getLogger("gan")
log.setLevel(logging.INFO)


class Players(NamedTuple):
    """The weights of both."""

    generator: Any
    critic: Any


def layers(*sizes: int) -> list[Any]:
    return [
        (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for shape in pairwise(sizes)
    ]


def through(weights: Any, rows: Any) -> Any:
    for weight in weights[:-1]:
        rows = jax.nn.leaky_relu(rows @ weight)
    return rows @ weights[-1]


def critic_loss(critic: Any, generator: Any, real: Any, noise: Any) -> Any:
    made = jax.lax.stop_gradient(through(generator, noise))
    return jnp.mean(jax.nn.softplus(through(critic, made))) + jnp.mean(
        jax.nn.softplus(-through(critic, real))
    )


def generator_loss(generator: Any, critic: Any, noise: Any) -> Any:
    return jnp.mean(jax.nn.softplus(-through(critic, through(generator, noise))))


def descended(weights: Any, slopes: Any) -> Any:
    return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, weights, slopes)


def play(players: Players, real: Any, key: Any) -> Any:
    noise = jax.random.normal(key, [2, BATCH, NOISE])
    slopes = jax.grad(critic_loss)(players.critic, players.generator, real, noise[0])
    critic = descended(players.critic, slopes)
    upwards = jax.grad(generator_loss)(players.generator, critic, noise[1])
    return Players(descended(players.generator, upwards), critic), Players(upwards, slopes)


def train(is_slow: bool, clock: StepClock) -> None:
    players = Players(layers(NOISE, 320, 320, 320, POINTS), layers(POINTS, 320, 320, 320, 1))
    pictures = rng.standard_normal([8, BATCH, POINTS]).astype(np.float32)
    key, step = jax.random.key(3), jax.jit(play)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("play", step_num=number):
            real = pictures[number % len(pictures)]
            players, slopes = step(players, real, jax.random.fold_in(key, number))
            if is_slow:
                log.debug(f"step {number}: gradients {slopes}")  # noqa: G004
            elif log.isEnabledFor(logging.DEBUG):
                log.debug("step %d: gradients %s", number, slopes)
            jax.block_until_ready(players)
        clock.step_ended()
