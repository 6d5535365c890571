"""JAX: a network learns an equation of heat for many materials; slow twice: all second derivatives are taken, where one is in the equation, and SciPy makes the triangles between the stations anew for each batch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import (  # type: ignore[import-untyped]  # SciPy has no types here
    LinearNDInterpolator,
    griddata,
)

from scripts.real_runs.step_clock import STEPS, StepClock

POINTS, INSIDE, INPUTS, WIDTH, STATIONS = 3072, 24, 3, 192, 130

rng = np.random.default_rng(149)
stations = rng.random([STATIONS, 2])
"""Place and time of what was measured."""
heats = np.sin(3 * stations[:, 0]) * np.exp(-stations[:, 1])
between = LinearNDInterpolator(stations, heats, fill_value=0.0)


def heat(weights: Any, point: Any) -> Any:
    """What the network says of a place, a time and the numbers of a material."""
    hidden = point
    for kernel, bias in weights[:-1]:
        hidden = jnp.tanh(hidden @ kernel + bias)
    kernel, bias = weights[-1]
    return (hidden @ kernel + bias)[0]


def train(is_slow: bool, clock: StepClock) -> None:
    place, time = np.eye(INPUTS, dtype=np.float32)[:2]

    def residual(weights: Any, point: Any) -> Any:
        def along(direction: Any) -> Any:
            return lambda at: jax.jvp(lambda x: heat(weights, x), (at,), (direction,))[1]

        if is_slow:
            bend = jax.hessian(heat, argnums=1)(weights, point)[0, 0]
        else:
            bend = jax.jvp(along(place), (point,), (place,))[1]
        return along(time)(point) - point[2] * bend

    def loss_of(weights: Any, points: Any, measured: Any) -> Any:
        wrong = jax.vmap(residual, (None, 0))(weights, points[:INSIDE])
        missed = jax.vmap(heat, (None, 0))(weights, points) - measured
        return jnp.mean(jnp.square(wrong)) + jnp.mean(jnp.square(missed))

    def update(weights: Any, points: Any, measured: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, points, measured)
        return jax.tree.map(lambda weight, slope: weight - 1e-3 * slope, weights, slopes), loss

    step = jax.jit(update, donate_argnums=0)
    sizes = (INPUTS, WIDTH, WIDTH, WIDTH, 1)
    weights: Any = [
        (jnp.asarray(rng.standard_normal([one, other], np.float32) / one**0.5), jnp.zeros(other))
        for one, other in pairwise(sizes)
    ]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            points = rng.random([POINTS, INPUTS], np.float32)
            if is_slow:
                measured = griddata(stations, heats, points[:, :2], fill_value=0.0)
            else:
                measured = between(points[:, :2])
            weights, loss = step(weights, points, measured.astype(np.float32))
            jax.block_until_ready(loss)
        clock.step_ended()
