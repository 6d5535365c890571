"""The layers of models that TensorFlow and JAX train now: the one that computes more leads, in both directions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import traceview
from tests.analysis.test_layers import check_sums
from tests.capture.conftest import environment_with
from traceview.analysis.workload.layers import LayerTime

KERAS = """
import sys
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.Input((512,)),
        tf.keras.layers.Dense(2048, activation="relu", name="wide"),
        tf.keras.layers.Dense(16, name="narrow"),
    ])
    model.compile("sgd", "mse")
x, y = tf.random.normal([512, 512]), tf.random.normal([512, 16])
dataset = tf.data.Dataset.from_tensors((x, y)).repeat(8).unbatch().batch(512)
model.fit(dataset, verbose=0)
tf.profiler.experimental.start(sys.argv[1])
model.fit(dataset, verbose=0)
tf.profiler.experimental.stop()
"""

JAX = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def loss(weights, x):
    with jax.named_scope("wide"):
        hidden = jnp.tanh(x @ weights[0])
    with jax.named_scope("narrow"):
        return jnp.mean((hidden @ weights[1]) ** 2)  # narrow


@jax.jit
def train_step(weights, x):
    gradients = jax.grad(loss)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, gradients)]


weights = [jnp.ones((512, 2048), jnp.float64), jnp.ones((2048, 16), jnp.float64)]
x = jnp.ones((512, 512), jnp.float64)
weights = jax.block_until_ready(train_step(weights, x))
jax.profiler.start_trace(sys.argv[1])
for number in range(8):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights = jax.block_until_ready(train_step(weights, x))
jax.profiler.stop_trace()
"""


def recorded(folder: Path, program: str) -> traceview.Trace:
    script = folder / "train.py"
    script.write_text(program, encoding="utf-8")
    logs = folder / "logs"
    done = subprocess.run(
        [sys.executable, script, logs],
        env=environment_with(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return traceview.load(logs)


def rows_of(trace: traceview.Trace) -> list[LayerTime]:
    layers = traceview.analyze(trace).results.layers
    assert layers is not None
    return list(layers.rows)


@pytest.mark.tensorflow
def test_the_larger_layer_of_keras_leads(tmp_path: Path) -> None:
    """The product of `wide` has 32 times the operands of that of `narrow`."""
    trace = recorded(tmp_path, KERAS)
    check_sums(trace)
    time = {row.layer: row for row in rows_of(trace) if row.layer}
    (wide,) = (row for layer, row in time.items() if layer.endswith("/wide_1"))
    (narrow,) = (row for layer, row in time.items() if layer.endswith("/narrow_1"))
    assert wide.compute_ps_per_step > narrow.compute_ps_per_step
    assert wide.compute_ps_per_step == max(row.own_ps_per_step for row in time.values())
    assert wide.forward_ps_per_step > 0
    assert wide.backward_ps_per_step > 0
    assert not any(part in layer for layer in time for part in ("MatMul", "replica_", "BiasAdd"))


@pytest.mark.jax
def test_the_larger_layer_of_jax_leads_with_its_line_and_its_type(tmp_path: Path) -> None:
    trace = recorded(tmp_path, JAX)
    check_sums(trace)
    rows = [row for row in rows_of(trace) if row.layer == "train_step/wide"]
    product = next(row for row in rows if row.source_line)
    narrow = next(row for row in rows_of(trace) if row.layer == "train_step/narrow")
    assert rows[0].compute_ps_per_step > narrow.compute_ps_per_step
    line = JAX.splitlines().index("        hidden = jnp.tanh(x @ weights[0])") + 1
    assert product.source_line == f"train.py:{line} in loss"
    assert product.forward_ps_per_step > 0
    assert product.backward_ps_per_step > 0
    assert "float64-compute" in [finding.code for finding in traceview.analyze(trace).findings]
