"""JAX: `pmap` trains on four devices; slow: each batch is made an array of JAX before the call, which lies on the first device and is cut and moved from there."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

DEVICES, BATCH, SIDE, CHANNELS, WIDTH, KINDS = 4, 48, 64, 3, 24, 10

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(101)
pictures = rng.standard_normal([4, DEVICES, BATCH, SIDE, SIDE, CHANNELS], np.float32)
kinds = rng.integers(0, KINDS, [4, DEVICES, BATCH], np.int32)


def loss_of(weights: Any, seen: Any, kind: Any) -> Any:
    patches = seen.reshape(len(seen), SIDE // 8, 8, SIDE // 8, 8, CHANNELS)
    patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(len(seen), -1, 64 * CHANNELS)
    hidden = jax.nn.gelu(patches @ weights["patches"])
    hidden = jnp.mean(hidden + jax.nn.gelu(hidden @ weights["inner"]), axis=1)
    scores = jax.nn.log_softmax(hidden @ weights["out"])
    return -jnp.mean(jnp.take_along_axis(scores, kind[:, None], axis=1))


@partial(jax.pmap, axis_name="data", donate_argnums=0)  # type: ignore[untyped-decorator]
def update(weights: Any, seen: Any, kind: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(weights, seen, kind)
    slopes = jax.lax.pmean(slopes, "data")
    return jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes), loss


def train(is_slow: bool, clock: StepClock) -> None:
    start = {
        "patches": rng.standard_normal([64 * CHANNELS, WIDTH], np.float32) / 14,
        "inner": rng.standard_normal([WIDTH, WIDTH], np.float32) / 10,
        "out": np.zeros([WIDTH, KINDS], np.float32),
    }
    weights = jax.tree.map(lambda value: np.stack([value] * DEVICES), start)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            batch = pictures[number % 4], kinds[number % 4]
            if is_slow:
                batch = jnp.asarray(batch[0]), jnp.asarray(batch[1])
            weights, loss = update(weights, *batch)
            jax.block_until_ready(loss)
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
