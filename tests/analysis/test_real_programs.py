"""Layers, FLOPs and collectives of programs that TensorFlow and JAX run now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import traceview
from tests.analysis.test_layers import check_sums
from tests.capture.conftest import Captured, environment_with
from tests.capture.in_process import Script, captured_scripts
from traceview.analysis.workload.layers import LayerTime

# Layers: the one that computes more leads, in both directions


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


# FLOPs against counts by hand: 2 for each pair that is multiplied and summed. Both gradients of a product have as many as it
# has; where the input of a model is no variable, it has no gradient.


TENSORFLOW = """
import tensorflow as tf

model = tf.keras.Sequential({layers})
optimizer = tf.keras.optimizers.SGD()
optimizer.build(model.trainable_variables)
x = {x}


@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    )
    return loss


for batch in tf.data.Dataset.from_tensors(x).repeat(10):
    train_step(batch)
"""

BATCH, STEPS, WIDTH, HEADS, HEAD = 32, 12, 48, 4, 12
DENSE = 2 * BATCH * 64 * 96
CONV = 2 * BATCH * 16 * 16 * 8 * 3 * 3 * 4
SECOND_CONV = 2 * BATCH * 8 * 8 * 16 * 3 * 3 * 8
"""With stride 2."""
GATES = 2 * BATCH * STEPS * 4 * 64
PROJECTION = 2 * BATCH * STEPS * WIDTH * HEADS * HEAD
SCORES = 2 * BATCH * HEADS * STEPS * STEPS * HEAD

MODELS = {
    "mlp": (
        "[tf.keras.Input((64,)), tf.keras.layers.Dense(96, 'relu'), tf.keras.layers.Dense(64)]",
        "tf.random.normal([32, 64])",
        2 * DENSE + 3 * DENSE,
    ),
    "convolution": (
        (
            "[tf.keras.Input((16, 16, 4)), tf.keras.layers.Conv2D(8, 3, padding='same'), "
            "tf.keras.layers.Conv2D(16, 3, strides=2, padding='same')]"
        ),
        "tf.random.normal([32, 16, 16, 4])",
        2 * CONV + 3 * SECOND_CONV,
    ),
    # Of the input and of the state: the products with the weights, and their gradients.
    "lstm": (
        "[tf.keras.Input((12, 48)), tf.keras.layers.LSTM(64)]",
        "tf.random.normal([32, 12, 48])",
        2 * GATES * 48 + 3 * GATES * 64,
    ),
    "attention": (
        "[tf.keras.Input((12, 48)), Attention()]",
        "tf.random.normal([32, 12, 48])",
        # Query, key and value are of the input; the result is projected; scores and what they weigh.
        3 * 2 * PROJECTION + 3 * PROJECTION + 2 * 3 * SCORES,
    ),
    # To look up and to scatter multiplies nothing.
    "embedding": (
        "[tf.keras.Input((12,), dtype='int32'), tf.keras.layers.Embedding(1000, 48), tf.keras.layers.Dense(64)]",
        "tf.zeros([32, 12], tf.int32)",
        3 * 2 * BATCH * STEPS * 48 * 64,
    ),
}
ATTENTION = """

class Attention(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = tf.keras.layers.MultiHeadAttention(4, 12)

    def build(self, shape):
        self.inner.build(shape, shape)

    def call(self, x):
        return self.inner(x, x)

"""

TRANSFORMER = """
import sys
import jax
import jax.numpy as jnp

B, T, D, H, F, V = 8, 32, 64, 4, 256, 512


def block(p, x):
    q, k, v = ((x @ p[name]).reshape(B, T, H, D // H) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    x = x + jnp.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, D) @ p["o"]
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def loss(p, tokens):
    x = p["embedding"][tokens]
    for each in p["blocks"]:
        x = block(each, x)
    return jnp.mean(jax.nn.logsumexp(x @ p["head"], -1))


@jax.jit
def train_step(p, tokens):
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(loss)(p, tokens))


def weight(number, *shape):
    return jax.random.normal(jax.random.key(number), shape) * 0.02


blocks = [
    {**{n: weight(i, D, D) for i, n in enumerate("qkvo")}, "up": weight(5, D, F), "down": weight(6, F, D)}
    for _ in range(2)
]
p = {"embedding": weight(7, V, D), "head": weight(8, D, V), "blocks": blocks}
tokens = jnp.arange(B * T).reshape(B, T) % V
p = jax.block_until_ready(train_step(p, tokens))
jax.profiler.start_trace(sys.argv[1])
for number in range(6):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        p = jax.block_until_ready(train_step(p, tokens))
jax.profiler.stop_trace()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    start, rest = TENSORFLOW.split("\n\n", 1)
    programs = {
        name: start + ATTENTION + rest.replace("{layers}", layers).replace("{x}", x)
        for name, (layers, x, _) in MODELS.items()
    }
    scripts = {name: Script(text, "4:8") for name, text in programs.items()}
    return captured_scripts(tmp_path_factory.mktemp("flops"), scripts, is_forked=True)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_keras(name: str, runs: dict[str, Captured]) -> None:
    efficiency = traceview.analyze(runs[name].run).results.efficiency
    assert efficiency is not None
    (row,) = efficiency.devices
    assert row.flops_per_step == pytest.approx(MODELS[name][2], rel=0.01)
    assert row.unknown_ratio < 0.02


@pytest.mark.jax
def test_a_transformer_of_jax(tmp_path: Path) -> None:
    b, t, d, f, v = 8, 32, 64, 256, 512
    projections, scores = 4 * 2 * b * t * d * d, 2 * 2 * b * t * t * d
    wide, head = 2 * 2 * b * t * d * f, 2 * b * t * d * v
    expected = 3 * (2 * (projections + scores + wide) + head)
    efficiency = traceview.analyze(recorded(tmp_path, TRANSFORMER)).results.efficiency
    assert efficiency is not None
    (row,) = efficiency.devices
    assert row.flops_per_step == pytest.approx(expected, rel=0.01)


# Collectives on a mesh of two axes


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
