"""FLOPs of a step of models that TensorFlow and JAX train, against counts by hand: 2 for each pair that is multiplied and summed.

Both gradients of a product have as many as it has; where the input of a model is no variable, it has no gradient.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from tests.analysis.test_layers_real import recorded
from tests.capture.conftest import Captured
from tests.capture.in_process import Script, captured_scripts

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

JAX = """
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
    efficiency = traceview.analyze(recorded(tmp_path, JAX)).results.efficiency
    assert efficiency is not None
    (row,) = efficiency.devices
    assert row.flops_per_step == pytest.approx(expected, rel=0.01)
