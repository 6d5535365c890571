"""Operations of products in graphs that TensorFlow traces now, against counts by hand."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import json
import tensorflow as tf
from traceview.capture.steps.graph_flops import describe_flops

dense = tf.Variable(tf.ones([30, 40]))
kernel = tf.Variable(tf.ones([3, 3, 5, 7]))
deep = tf.Variable(tf.ones([3, 3, 7, 2]))
heads = tf.Variable(tf.ones([14, 4, 6]))


@tf.function
def layer(x):
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, dense, name="dense"), tf.ones([40]), name="bias"), name="relu")


@tf.function(input_signature=[tf.TensorSpec([None, 30]), tf.TensorSpec([None, 16, 16, 5]), tf.TensorSpec([None, None])])
def step(x, image, free):
    with tf.GradientTape() as tape:
        h = layer(x)
        c = tf.nn.conv2d(image, kernel, 2, "SAME", name="conv")
        d = tf.nn.depthwise_conv2d(c, deep, [1, 1, 1, 1], "SAME", name="deep")
        rows = tf.reshape(d, [-1, 14])
        wide = tf.matmul(rows, tf.ones([14, 3]), name="flat")
        q = tf.einsum("bxc,chd->bxhd", tf.reshape(d, [-1, 64, 14]), heads, name="heads")
        loss = tf.reduce_sum(h) + tf.reduce_sum(wide) + tf.reduce_sum(q)
    for _ in tf.range(3):
        h = tf.matmul(h, tf.ones([40, 40]), name="looped")
    lost = tf.matmul(free, free, name="lost")
    gradient = tape.gradient(loss, [dense, kernel, deep, heads])
    return gradient, h, tf.reduce_sum(lost)


graph = step.get_concrete_function().graph
print(json.dumps([describe_flops([graph], 8), describe_flops([graph], None)]))
"""


@pytest.fixture(scope="module")
def flops(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, int]]:
    script = tmp_path_factory.mktemp("graphs") / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    result: list[dict[str, int]] = json.loads(done.stdout)
    return result


CONV = 2 * 8 * 8 * 8 * 7 * 3 * 3 * 5
DEEP = 2 * 8 * 8 * 8 * 14 * 3 * 3
HEADS = 2 * 8 * 64 * 14 * 4 * 6


@pytest.mark.parametrize(
    ("ending", "count"),
    [
        ("dense", 2 * 8 * 30 * 40),
        ("relu", 2 * 8 * 30 * 40),
        ("dense_grad/MatMul", 2 * 8 * 30 * 40),
        ("conv", CONV),
        ("gradient_tape/Conv2DBackpropFilter", CONV),
        ("deep", DEEP),
        ("DepthwiseConv2dNativeBackpropInput", DEEP),
        ("DepthwiseConv2dNativeBackpropFilter", DEEP),
        ("flat", 2 * 8 * 64 * 14 * 3),
        ("heads/Einsum", HEADS),
        ("looped", 2 * 8 * 40 * 40),
        ("lost", None),
    ],
)
def test_counts_by_hand(flops: list[dict[str, int]], ending: str, count: int | None) -> None:
    """Of a batch of eight, of which the graph knows no size; the rows of a tensor that was flattened are more."""
    known, _ = flops
    found = {name: each for name, each in known.items() if name.endswith(ending)}
    assert set(found.values()) == ({count} if count else set()), known


def test_without_the_size_of_a_batch_nothing_depends_on_it(flops: list[dict[str, int]]) -> None:
    assert flops[1] == {}


def test_an_op_of_a_function_has_the_name_of_its_call_before_it_too(
    flops: list[dict[str, int]],
) -> None:
    names = [name for name in flops[0] if name.endswith("relu")]
    assert len(names) == 2
    assert any("Call" in name for name in names)
