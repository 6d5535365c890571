"""JAX: each of two devices has the scores of half of the words; slow: the scores of all words are gathered on both for the loss, not the sums of their halves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

DEVICES, ROWS, WORDS, WIDTH = 2, 192, 8000, 192

jax.config.update("jax_num_cpu_devices", DEVICES)
mesh = Mesh(np.array(jax.devices()), ("words",))
rng = np.random.default_rng(101)


def gathered_loss(scores: Any, target: Any) -> Any:
    """The loss of the scores of all words."""
    scores = jax.lax.all_gather(scores, "words", axis=1, tiled=True)
    chosen = jnp.take_along_axis(scores, target[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=1) - chosen)


def parted_loss(scores: Any, target: Any) -> Any:
    """The same, of sums over the words that this device has."""
    count = scores.shape[1]
    place = target - jax.lax.axis_index("words") * count
    is_here = (place >= 0) & (place < count)
    chosen = jnp.take_along_axis(scores, jnp.clip(place, 0, count - 1)[:, None], axis=1)[:, 0]
    largest = jax.lax.stop_gradient(jnp.max(scores, axis=1))
    largest = jax.lax.pmax(largest, "words")
    total = jnp.sum(jnp.exp(scores - largest[:, None]), axis=1)
    both = jnp.stack([total, jnp.where(is_here, chosen, 0.0)])
    total, chosen = jax.lax.psum(both, "words")
    return jnp.mean(jnp.log(total) + largest - chosen)


def train(is_slow: bool, clock: StepClock) -> None:
    loss_of_scores = gathered_loss if is_slow else parted_loss

    def loss_of(params: Any, rows: Any, target: Any) -> Any:
        hidden = jnp.tanh(jnp.tanh(rows @ params["in"]) @ params["middle"])
        return loss_of_scores(hidden @ params["words"], target)

    def update(params: Any, rows: Any, target: Any) -> Any:
        slopes = jax.grad(loss_of)(params, rows, target)
        shared = jax.lax.pmean({name: slopes[name] for name in ("in", "middle")}, "words")
        slopes = {**slopes, **shared}
        return jax.tree.map(lambda value, slope: value - 1e-2 * slope, params, slopes)

    whole = PartitionSpec()
    of_params = {"in": whole, "middle": whole, "words": PartitionSpec(None, "words")}
    mapped = jax.shard_map(
        update,
        mesh=mesh,
        in_specs=(of_params, whole, whole),
        out_specs=of_params,
        check_vma=False,
    )
    # As on two real devices, none of them computes on the cores of the other.
    options = {"xla_cpu_multi_thread_eigen": False}
    step = jax.jit(mapped, donate_argnums=0, compiler_options=options)
    shapes = {"in": (WIDTH, WIDTH), "middle": (WIDTH, WIDTH), "words": (WIDTH, WORDS)}
    params = {
        name: jax.device_put(
            (rng.standard_normal(shape) / 14).astype(np.float32),
            NamedSharding(mesh, of_params[name]),
        )
        for name, shape in shapes.items()
    }
    on_both = NamedSharding(mesh, whole)
    rows = jax.device_put(rng.standard_normal([ROWS, WIDTH], np.float32), on_both)
    target = jax.device_put(rng.integers(0, WORDS, ROWS, np.int32), on_both)
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params = step(params, rows, target)
            jax.block_until_ready(params)
        clock.step_ended()
