"""What is constant and what is float64 in graphs that TensorFlow traces now."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import json
import tensorflow as tf
from traceview.capture.steps.graph_values import describe_values

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


print(json.dumps(describe_values([step.get_concrete_function(tf.ones([40, 40])).graph])))
"""


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("graphs") / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def of_names(names: Any, *wanted: str) -> set[str]:
    """Which of the wanted ops are among names, as far as the script gave them."""
    return {name for name in wanted if any(one.endswith(name) for one in names)}


def test_what_reads_only_tensors_from_before_the_graph_is_constant(values: dict[str, Any]) -> None:
    constant = values["constant_ops"]
    expected = {"squared", "eigen", "inner/svd"}
    assert of_names(constant, *expected) == expected


def test_what_depends_on_variables_arguments_and_chance_is_not(values: dict[str, Any]) -> None:
    others = ("noise", "scaled", "read", "LookupTableFindV2", "wide", "inner/product", "looped")
    assert of_names(values["constant_ops"], *others) == set()


def test_results_in_float64_are_named_and_what_comes_after_is_not(values: dict[str, Any]) -> None:
    names = values["float64_ops"]
    assert of_names(names, "wide", "in_wide", "narrow", "squared", "looped") == {"wide", "in_wide"}


def test_an_op_of_a_function_has_the_name_of_its_call_before_it_too(values: dict[str, Any]) -> None:
    names = [name for name in values["constant_ops"] if name.endswith("svd")]
    assert len(names) == 2
    assert any("Call" in name for name in names)


DEEP = """
import tensorflow as tf
from traceview.capture.steps.graph_values import describe_values


def ten_times(function):
    return tf.function(lambda x: sum(function(x) for _ in range(10)))


function = tf.function(lambda x: x * 2)
for _ in range(6):
    function = ten_times(function)
try:
    describe_values([function.get_concrete_function(tf.zeros([2])).graph])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_calls_that_lead_to_a_million_ops_are_not_followed_to_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP], check=True, capture_output=True, text=True)
    assert done.stdout == "NoAnswerError its calls lead to more than 300,000 ops\n"
