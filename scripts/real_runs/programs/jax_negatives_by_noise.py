"""JAX on two devices, vectors of words; slow: words that do not fit are drawn by `jax.random.categorical`, which makes a random
number for each word of the vocabulary, not by a number that is looked up in the summed probabilities.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from scripts.real_runs.step_clock import STEPS, StepClock

BATCH, AROUND, DRAWN, WORDS, SIZE, UNITS = 256, 8, 2, 1200, 192, 768
mesh = Mesh(np.array(jax.devices()), ("data",))
rows = NamedSharding(mesh, P("data"))
everywhere = NamedSharding(mesh, P())
random = np.random.default_rng(2)
frequencies = 1.0 / np.arange(1, WORDS + 1) ** 0.75
chances = jnp.asarray(frequencies / frequencies.sum(), jnp.float32)
summed = jnp.cumsum(chances)


def train(is_slow: bool, clock: StepClock) -> None:
    def drawn(key: Any, count: int) -> Any:
        if is_slow:
            return jax.random.categorical(key, jnp.log(chances), shape=(count, DRAWN))
        return jnp.searchsorted(summed, jax.random.uniform(key, (count, DRAWN)) * summed[-1])

    def local_loss(weights: Any, texts: Any, words: Any, others: Any) -> Any:
        inside, first, second, outside = weights
        hidden = inside[texts].reshape(len(texts), -1)
        context = jnp.tanh(jnp.tanh(hidden @ first) @ second)
        fits = jnp.sum(context * outside[words], -1)
        misfits = jnp.einsum("bs,bds->bd", context, outside[others])
        return -jnp.mean(jax.nn.log_sigmoid(fits)) - jnp.mean(jax.nn.log_sigmoid(-misfits))

    def local_step(weights: Any, key: Any, texts: Any, words: Any) -> Any:
        others = drawn(jax.random.fold_in(key, jax.lax.axis_index("data")), len(words))
        loss, gradients = jax.value_and_grad(local_loss)(weights, texts, words, others)
        gradients = jax.lax.pmean(gradients, "data")
        return jax.tree.map(lambda w, g: w - 1e-2 * g, weights, gradients), jax.lax.pmean(
            loss, "data"
        )

    update = jax.jit(
        jax.shard_map(
            local_step,
            mesh=mesh,
            in_specs=(P(), P(), P("data"), P("data")),
            out_specs=(P(), P()),
            check_vma=False,
        )
    )
    shapes = [(WORDS, SIZE), (AROUND * SIZE, UNITS), (UNITS, SIZE), (WORDS, SIZE)]
    weights = jax.device_put(
        [random.standard_normal(s, np.float32) / s[0] ** 0.5 for s in shapes], everywhere
    )
    keys = jax.device_put(list(jax.random.split(jax.random.key(1), STEPS)), everywhere)
    batches = [
        jax.device_put(
            [random.integers(0, WORDS, (BATCH, AROUND)), random.integers(0, WORDS, BATCH)], rows
        )
        for _ in range(4)
    ]
    before = None
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = update(weights, keys[number], *batches[number % 4])
            jax.block_until_ready(before)
        before = loss
        clock.step_ended()
