"""JAX: a convolution of sounds, cut at random; slow: each sound's cut has a random generator of its own, and the loss of every sixth step is appended to an array of JAX, which has another length each time."""

from __future__ import annotations

import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks

BATCH, SOUNDS, LONG, LENGTH, KINDS, EVERY = 128, 1024, 400, 256, 10, 6

rng = np.random.default_rng(19)
sounds = rng.standard_normal([SOUNDS, LONG], np.float32)
kinds = rng.integers(0, KINDS, SOUNDS)


def drawn(generator: Any, count: int) -> tuple[Any, Any]:
    """Where sounds are cut, and how loud they are."""
    return generator.integers(0, LONG - LENGTH, count), generator.uniform(0.8, 1.2, count)


def batch_of(number: int, is_slow: bool) -> tuple[Any, Any]:
    chosen = (number * BATCH + np.arange(BATCH)) % SOUNDS
    if is_slow:
        each = [drawn(np.random.default_rng([7, number, int(one)]), 1) for one in chosen]
        starts, loudness = (np.concatenate(values) for values in zip(*each, strict=True))
    else:
        starts, loudness = drawn(np.random.default_rng([7, number]), BATCH)
    cut = sounds[chosen[:, None], starts[:, None] + np.arange(LENGTH)]
    return cut * loudness[:, None].astype(np.float32), kinds[chosen]


def loss_of(params: Any, heard: Any, kind: Any) -> Any:
    hidden = heard[:, :, None]
    for number, kernel in enumerate(params["kernels"]):
        hidden = jax.lax.conv_general_dilated(
            hidden,
            kernel,
            (4 if number == 0 else 2,),
            "SAME",
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        hidden = jax.nn.relu(hidden)
    scores = jax.nn.log_softmax(jnp.mean(hidden, axis=1) @ params["out"])
    return -jnp.mean(jnp.take_along_axis(scores, kind[:, None], axis=1))


def update(params: Any, heard: Any, kind: Any) -> Any:
    loss, slopes = jax.value_and_grad(loss_of)(params, heard, kind)
    return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes), loss


class Losses:
    """All losses so far, of this training run and those before it, as an array."""

    def __init__(self) -> None:
        self.values = jnp.zeros([0])

    def append(self, loss: Any) -> None:
        self.values = jnp.append(self.values, loss)


as_array, as_list = Losses(), list[Any]()


def train(is_slow: bool, clock: StepClock) -> None:
    step = jax.jit(update)
    log = as_array if is_slow else as_list
    sizes = ((9, 1, 64), (5, 64, 96), (5, 96, 128))
    kernels = [rng.standard_normal(size, np.float32) / (size[0] * size[1]) ** 0.5 for size in sizes]
    params = jax.device_put(
        {"kernels": kernels, "out": rng.standard_normal([128, KINDS], np.float32)}
    )
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, *batch_of(number, is_slow))
            loss.block_until_ready()
            if number % EVERY == EVERY - 1:
                log.append(loss)
        clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with jax.profiler.trace(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
