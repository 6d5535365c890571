"""JAX: samples with larger losses are drawn more often, over a mesh; slow twice: caches are cleared every sixth step, and each draw weighs all samples anew."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, BATCH, SAMPLES, FEATURES, WIDTH = 2, 2048, 300_000, 24, 512

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("data",))
by_row = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())
rng = np.random.default_rng(31)
samples = rng.standard_normal([SAMPLES, FEATURES]).astype(np.float32)


class Sampler:
    """Draws samples by their last loss."""

    def __init__(self, *, is_slow: bool) -> None:
        self._losses = np.ones(SAMPLES)
        self._is_slow = is_slow
        self._drawn = iter(())

    def draw(self) -> Any:
        if self._is_slow:
            return rng.choice(SAMPLES, BATCH, p=self._losses / self._losses.sum())
        # A draw of the many that are refused is taken if its loss is above a random part of the largest one.
        places = rng.integers(0, SAMPLES, 4 * BATCH)
        is_taken = rng.random(4 * BATCH) * 2 < self._losses[places]
        return np.resize(places[is_taken], BATCH)

    def weigh(self, places: Any, losses: Any) -> None:
        self._losses[places] = np.clip(losses, 0.5, 2)


def losses_of(weights: Any, rows: Any) -> Any:
    first, middle, last = weights
    hidden = jax.nn.relu(jax.nn.relu(rows @ first) @ middle)
    return jnp.mean(jnp.square(hidden @ last - rows), axis=1)


def update(weights: Any, rows: Any) -> Any:
    def mean_loss(weights: Any) -> Any:
        losses = losses_of(weights, rows)
        return jnp.mean(losses), losses

    slopes, losses = jax.grad(mean_loss, has_aux=True)(weights)
    return [weight - 1e-2 * slope for weight, slope in zip(weights, slopes, strict=True)], losses


def train(is_slow: bool, clock: StepClock) -> None:
    shapes = (FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, FEATURES)
    start = [(rng.standard_normal(shape) / 20).astype(np.float32) for shape in shapes]
    weights, sampler = jax.device_put(start, everywhere), Sampler(is_slow=is_slow)
    step = jax.jit(update)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            places = sampler.draw()
            weights, losses = step(weights, jax.device_put(samples[places], by_row))
            sampler.weigh(places, np.asarray(losses))
            if is_slow and number % 6 == 3:
                # "Memory grew on the old cluster."
                jax.clear_caches()
        clock.step_ended()
