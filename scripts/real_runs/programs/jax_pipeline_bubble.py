"""JAX: two devices are stages of a pipeline by `shard_map` and `ppermute`; slow: the batch is passed on as a whole, so that one of them waits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.real_runs.step_clock import STEPS, StepClock

STAGES, LAYERS, BATCH, WIDTH, PARTS = 2, 4, 512, 384, 4

jax.config.update("jax_num_cpu_devices", STAGES)
mesh = Mesh(np.array(jax.devices()), ("stage",))
rng = np.random.default_rng(11)


def stage_of(weights: Any, rows: Any) -> Any:
    hidden = rows
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return hidden


def nothing(weights: Any, rows: Any) -> Any:
    return jnp.zeros_like(rows)


def loss_of(weights: Any, rows: Any, parts: int) -> Any:
    """The loss on the last stage, and 0 on those before it."""
    stage = jax.lax.axis_index("stage")
    pieces = rows.reshape(parts, -1, WIDTH)

    def tick(received: Any, time: Any) -> Any:
        piece = time - stage
        given = jnp.where(stage == 0, pieces[jnp.clip(time, 0, parts - 1)], received)
        is_there = (piece >= 0) & (piece < parts)
        outputs = jax.lax.cond(is_there, stage_of, nothing, weights, given)
        sent = jax.lax.ppermute(outputs, "stage", [(n, n + 1) for n in range(STAGES - 1)])
        return sent, outputs

    _, outputs = jax.lax.scan(tick, jnp.zeros_like(pieces[0]), jnp.arange(parts + STAGES - 1))
    distance = jnp.mean(jnp.square(outputs[STAGES - 1 :] - pieces))
    return jnp.where(stage == STAGES - 1, distance, 0.0)


def train(is_slow: bool, clock: StepClock) -> None:
    parts = 1 if is_slow else PARTS

    def mine(weights: Any, rows: Any) -> Any:
        return loss_of([weight[0] for weight in weights], rows, parts)

    def update(weights: Any, rows: Any) -> Any:
        loss, slopes = jax.value_and_grad(mine)(weights, rows)
        weights = jax.tree.map(lambda weight, slope: weight - 1e-2 * slope, weights, slopes)
        return weights, jax.lax.psum(loss, "stage")

    by_stage, whole = PartitionSpec("stage"), PartitionSpec()
    mapped = jax.shard_map(
        update, mesh=mesh, in_specs=(by_stage, whole), out_specs=(by_stage, whole), check_vma=False
    )
    # As on two real devices, none of them computes on the cores of the other.
    options = {"xla_cpu_multi_thread_eigen": False}
    step = jax.jit(mapped, donate_argnums=0, compiler_options=options)
    start = (rng.standard_normal([LAYERS, STAGES, WIDTH, WIDTH]) / 18).astype(np.float32)
    weights = jax.device_put(list(start), NamedSharding(mesh, by_stage))
    batches = rng.standard_normal([4, BATCH, WIDTH]).astype(np.float32)
    rows = [jax.device_put(batch, NamedSharding(mesh, whole)) for batch in batches]
    for number in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights, loss = step(weights, rows[number % len(rows)])
            loss.block_until_ready()
        clock.step_ended()
