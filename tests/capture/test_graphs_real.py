"""What is constant and what is float64 in graphs that TensorFlow traces now, and the operations of their products."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture.conftest import run_python

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import json
import tensorflow as tf
from traceview.graphs import calls, values
from traceview.graphs.flops import describe_flops

table = tf.random.normal([40, 40])
weight = tf.Variable(tf.ones([40, 40]))
lookup = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0]), default_value=0.0
)


@tf.function
def inner(fixed, x):
    with tf.name_scope("inner"):
        svd = tf.linalg.svd(fixed, compute_uv=False, name="svd")
        product = tf.matmul(fixed, x, name="product")
    return svd[0] + tf.reduce_sum(product)


@tf.function
def step(x):
    squared = tf.matmul(table, table, name="squared")
    eigen = tf.linalg.eigvalsh(squared, name="eigen")
    noise = tf.random.uniform([40], name="noise")
    scaled = tf.multiply(noise, eigen, name="scaled")
    read = tf.matmul(weight, table, name="read")
    found = lookup.lookup(tf.constant([1]))
    wide = tf.cast(x, tf.float64, name="wide")
    narrow = tf.cast(tf.matmul(wide, wide, name="in_wide"), tf.float32, name="narrow")
    for _ in tf.range(3):
        narrow += tf.matmul(squared, narrow, name="looped")
    total = tf.reduce_sum(scaled) + tf.reduce_sum(read) + found[0] + tf.reduce_sum(narrow)
    return total + inner(squared, x)


described = values.describe_values([step.get_concrete_function(tf.ones([40, 40])).graph], {})

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
flops = [describe_flops([graph], 8), describe_flops([graph], None)]
"""


TRAINING = """
weight, slot = tf.Variable(tf.ones([6, 8])), tf.Variable(tf.zeros([6, 8]), trainable=False)
metric, average = (tf.Variable(tf.zeros(shape), trainable=False) for shape in ([], [6, 8]))


@tf.function
def report(outputs):
    return tf.reduce_sum(tf.sort(outputs, name="sorted"), name="total")


def forward(x, labels):
    x = tf.cast(x, tf.float32, name="as_float")
    if tf.reduce_sum(x) > 0.0:
        x = tf.multiply(x, 2.0, name="in_branch")
    for _ in tf.range(3):
        x = tf.tanh(x, name="in_loop")
    noise = tf.add(x, tf.random.uniform([6]), name="with_noise")
    with tf.name_scope("normal"):
        length = tf.reduce_sum(tf.multiply(weight, weight, name="squares"), name="length")
        unit = tf.multiply(weight, tf.math.rsqrt(length, name="inverse"), name="unit")
    outputs = tf.matmul(noise, unit, name="product")
    hot = tf.one_hot(tf.cast(labels, tf.uint8, name="as_int"), 8, name="hot")
    return outputs, tf.reduce_mean(tf.square(outputs - hot, name="squared"))


@tf.function
def step(x, labels):
    with tf.GradientTape() as tape:
        outputs, loss = forward(x, labels)
    gradient = tape.gradient(loss, weight)
    if loss > 0.0:
        slot.assign(tf.multiply(0.9, slot, name="decayed") + gradient)
    weight.assign_sub(tf.multiply(slot, 0.1, name="scaled"))
    with tf.name_scope("average"):
        average.assign(tf.multiply(average, 0.9, name="kept"))
    metric.assign_add(report(outputs))
    most = 0.0
    if loss > 0.0:
        most = tf.reduce_max(tf.exp(outputs, name="exponential"))
    unused = tf.argsort(labels, name="of_labels"), tf.matmul(outputs, outputs, transpose_b=True, name="alike")
    return loss, most, unused


@tf.function
def evaluate(x, labels):
    outputs, loss = forward(x, labels)
    metric.assign_add(report(outputs))
    return loss


total = tf.Variable(0.0)


@tf.function
def gradients(x, labels):
    with tf.GradientTape() as tape:
        _, loss = forward(x, labels)
    total.assign_add(loss)
    return tape.gradient(loss, weight)


@tf.function
def reader(x):
    with tf.GradientTape() as tape:
        scores = tf.reshape(tf.matmul(x, weight), [4, 1, 8])
        texts, lengths = tf.ones([1, 2], tf.int32), tf.constant([4])
        loss = tf.nn.ctc_loss(texts, scores, tf.constant([2]), lengths)
    return tape.gradient(loss, weight)


of = [tf.ones([4, 6], tf.uint8), tf.ones([4], tf.int32)]
functions = step, evaluate, gradients
made = [each.get_concrete_function(*of).graph for each in functions]
trained = {id(weight.handle), id(total.handle)}
training = [values.describe_values([each], {}, trained) for each in made]
hidden = calls.computes_gradients(reader.get_concrete_function(tf.ones([4, 6])))
"""
MANY_CALLS = """
def ten_times(function):
    return tf.function(lambda x: sum(function(x) for _ in range(10)))


function = tf.function(lambda x: x * 2)
for _ in range(3):
    function = ten_times(function)
calls.MOST_VISITED = 1_000
try:
    values.describe_values([function.get_concrete_function(tf.zeros([2])).graph], {})
except Exception as error:
    problem = f"{type(error).__name__} {error}"
print(json.dumps([described, flops, training, hidden, problem]))
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    script = PROGRAM + TRAINING + MANY_CALLS
    done = run_python(tmp_path_factory.mktemp("graphs"), "train.py", script=script, code=0)
    names = ("values", "flops", "training", "hidden", "problem")
    return dict(zip(names, json.loads(done.out), strict=True))


def of_names(names: Any, *wanted: str) -> set[str]:
    """Which of the wanted ops are among names, as far as the script gave them."""
    return {name for name in wanted if any(one.endswith(name) for one in names)}


def test_what_reads_only_tensors_from_before_the_graph_is_constant(described: Any) -> None:
    constant = {"squared", "eigen", "inner/svd"}
    # They depend on variables, arguments and chance.
    others = {"noise", "scaled", "read", "LookupTableFindV2", "wide", "inner/product", "looped"}
    assert of_names(described["values"]["constant_ops"], *constant, *others) == constant


def test_results_in_float64_are_named_and_what_comes_after_is_not(described: Any) -> None:
    names = described["values"]["float64_ops"]
    assert of_names(names, "wide", "in_wide", "narrow", "squared", "looped") == {"wide", "in_wide"}


def test_an_op_of_a_function_has_the_name_of_its_call_before_it_too(described: Any) -> None:
    constant, flops = described["values"]["constant_ops"], described["flops"][0]
    for found, end in ((constant, "svd"), (flops, "relu")):
        names = [name for name in found if name.endswith(end)]
        assert len(names) == 2
        assert any("Call" in name for name in names)


def test_calls_that_lead_to_too_many_ops_are_not_followed_to_the_end(described: Any) -> None:
    assert described["problem"] == "NoAnswerError its calls lead to more than 1,000 ops"


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
def test_counts_by_hand(described: Any, ending: str, count: int | None) -> None:
    """Of a batch of eight, of which the graph knows no size; the rows of a tensor that was flattened are more."""
    known, without_a_batch = described["flops"]
    found = {name: each for name, each in known.items() if name.endswith(ending)}
    assert set(found.values()) == ({count} if count else set()), known
    assert without_a_batch == {}


OF_BATCH = {"as_int", "in_branch", "in_loop", "hot"}
OF_REPORTS = {"sorted/TopKV2", "exponential", "of_labels/TopKV2", "alike", "kept"}
OF_VARIABLES = {"normal/squares", "normal/length", "normal/inverse", "normal/unit"}
OTHERS = ("as_float", "with_noise", "product", "squared", "decayed", "scaled")


def test_what_reads_the_batch_alone_and_what_trains_nothing(described: Any) -> None:
    training = described["training"]
    names = (*OF_BATCH, *OF_REPORTS, *OF_VARIABLES, *OTHERS)
    assert of_names(training[0]["batch_ops"], *names) == OF_BATCH
    assert of_names(training[0]["untrained_ops"], *names) == OF_REPORTS
    of_variables = training[0]["variable_ops"]
    assert of_names(of_variables, *names) == OF_VARIABLES
    assert any(name.startswith("gradient_tape/normal/") for name in of_variables)


def test_without_an_update_by_gradients_neither_is_known(described: Any) -> None:
    for values in described["training"][1:]:
        assert values["batch_ops"] == values["untrained_ops"] == values["variable_ops"] == []


def test_a_function_that_cannot_be_read_hides_no_gradients(described: Any) -> None:
    """`tf.nn.ctc_loss` calls one of TensorFlow 1."""
    assert described["hidden"] is True
