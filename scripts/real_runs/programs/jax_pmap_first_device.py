"""JAX: `pmap` trains on four devices; slow: each batch is made an array of JAX before the call, which lies on the first device and is cut and moved from there."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

DEVICES, BATCH, SIDE, CHANNELS, WIDTH, KINDS, BATCHES = 4, 96, 32, 3, 16, 10, 4

jax.config.update("jax_num_cpu_devices", DEVICES)
rng = np.random.default_rng(101)
batches = [
    {
        "pictures": rng.standard_normal([DEVICES, BATCH, SIDE, SIDE, CHANNELS], np.float32),
        "kinds": rng.integers(0, KINDS, [DEVICES, BATCH], np.int32),
        "turned": rng.integers(0, 2, [DEVICES, BATCH], np.int32),
        "shares": rng.random([DEVICES, BATCH], np.float32),
    }
    for _ in range(BATCHES)
]


def loss_of(weights: Any, batch: dict[str, Any]) -> Any:
    seen = batch["pictures"]
    seen = jnp.where(batch["turned"][:, None, None, None] > 0, seen[:, :, ::-1], seen)
    patches = seen.reshape(len(seen), SIDE // 8, 8, SIDE // 8, 8, CHANNELS)
    patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(len(seen), -1, 64 * CHANNELS)
    hidden = jax.nn.gelu(patches @ weights["patches"])
    hidden = jnp.mean(hidden + jax.nn.gelu(hidden @ weights["inner"]), axis=1)
    scores = jax.nn.log_softmax(hidden @ weights["out"])
    right = jnp.take_along_axis(scores, batch["kinds"][:, None], axis=1)[:, 0]
    return -jnp.mean(right * batch["shares"])


@partial(jax.pmap, axis_name="data", donate_argnums=0)
def update(weights: Any, batch: dict[str, Any]) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch)
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
            batch = batches[number % BATCHES]
            if is_slow:
                batch = jax.tree.map(jnp.asarray, batch)
            weights, loss = update(weights, batch)
            jax.block_until_ready(loss)
        clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with jax.profiler.trace(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
