"""Collectives of a JAX program on a mesh of two axes: which devices exchange what, as the program and its run say."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from tests.analysis.test_layers_real import recorded

MESH = """
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))


def loss(params, x):
    with jax.named_scope("up"):
        h = jnp.tanh(x @ params["up"])
    with jax.named_scope("down"):
        h = h @ params["down"]
    return jnp.mean(h**2)


@jax.jit
def train_step(params, x):
    value, gradients = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def placed(array, *axes):
    return jax.device_put(array, NamedSharding(mesh, P(*axes)))


params = {
    "up": placed(jnp.ones((64, 256)), None, "model"),
    "down": placed(jnp.ones((256, 64)), "model", None),
}
x = placed(jnp.ones((32, 64)), "data")
jax.block_until_ready(train_step(params, x))
jax.profiler.start_trace(sys.argv[1])
for number in range(6):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        params, value = jax.block_until_ready(train_step(params, x))
jax.profiler.stop_trace()
"""

SUMMED = 32 // 2 * 64 * 4
"""What each device gives for the sum over the parts of `down`: its half of the batch."""

GRADIENTS = 2 * 64 * 128 * 4
"""Its halves of both gradients, to which a loss of 4 bytes comes."""


@pytest.mark.jax
def test_devices_of_a_mesh_exchange_along_its_axes(tmp_path: Path) -> None:
    trace = recorded(tmp_path, MESH)
    result = traceview.analyze(trace).results.collectives
    assert result is not None
    forward, backward = sorted(result.ops, key=lambda op: op.bytes or 0)
    assert forward.bytes == SUMMED
    assert backward.bytes is not None
    assert GRADIENTS <= backward.bytes <= GRADIENTS + 16
    assert {op.device_count for op in result.ops} == {2}

    frame = trace.table("collectives")
    for op, pairs in (
        (forward.op, {("CPU:0", "CPU:1"), ("CPU:2", "CPU:3")}),
        (backward.op, {("CPU:0", "CPU:2"), ("CPU:1", "CPU:3")}),
    ):
        of_op = frame[frame["op"] == op].groupby("collective")["device"]
        assert {tuple(sorted(devices)) for _, devices in of_op} == pairs
