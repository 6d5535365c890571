"""What the sidecar of real captures says of strategy, batches, variables and placement, and the report of them; one process."""

from __future__ import annotations

from typing import Any

import pytest

import traceview
from tests.capture.conftest import Captured
from tests.capture.in_process import Script, captured_scripts
from tests.capture.test_with_tensorflow import START

pytestmark = pytest.mark.tensorflow

CPU = "/job:localhost/replica:0/task:0/device:CPU:"

MORE = """
import numpy as np
import gc; gc.collect()  # what the scripts before this one left
# One for all scripts: each new one begins to number its collectives anew, which TensorFlow takes amiss.
two = tf.two = getattr(tf, "two", None) or tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
def spread(batch_size=16, remainder=False):
    # Of other shapes than data(), which other scripts of this process hold.
    features, labels = tf.random.normal([64, 4]), tf.random.normal([64, 1])
    made = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
    return two.experimental_distribute_dataset(made.batch(batch_size, drop_remainder=remainder))
def replica(variable):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ variable - y) ** 2)
        gradient = tape.gradient(loss, variable)
        gradient = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        variable.assign_sub(0.01 * gradient, read_value=False)
        return loss
    return step
"""
KINDS = {
    "two replicas": """
with two.scope(): kernel = tf.Variable(tf.ones([4, 1]))
rows, body = spread(), replica(kernel)
@tf.function
def both(batches): return two.run(body, args=next(batches))
batches = iter(rows)
for _ in range(12): both(batches)
""",
    "outside the scope": """
loose = tf.Variable(tf.ones([4, 1]), name="loose")
rows, body = spread(), replica(loose)
@tf.function
def careless(batch): return two.run(body, args=batch)
for _, batch in zip(range(12), rows): careless(batch)
""",
    "all on one device": """
with tf.device("/cpu:1"): alone = tf.Variable(tf.ones([8, 1]))
@tf.function
def single(x, y):
    with tf.device("/cpu:1"), tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ alone - y) ** 2)
        alone.assign_sub(tape.gradient(loss, alone))
for x, y in data(12): single(x, y)
""",
    "replicas run eagerly": """
with two.scope(): kernel = tf.Variable(tf.ones([4, 1]))
body = replica(kernel)
inner = tf.function(body)
for _, batch in zip(range(12), spread(12, True)): two.run(inner, args=batch)
""",
    "batches from a function": """
with two.scope(): kernel = tf.Variable(tf.ones([4, 1]))
body = replica(kernel)
few = tf.data.Dataset.from_tensor_slices((tf.ones([64, 4]), tf.ones([64, 1]))).repeat().batch(8)
made = two.distribute_datasets_from_function(lambda _: few)
@tf.function
def fed(batches): return two.run(body, args=next(batches))
batches = iter(made)
for _ in range(12): fed(batches)
""",
    "no graph": """
with two.scope(): kernel = tf.Variable(tf.ones([4, 1]))
def bare(x, y):
    with tf.GradientTape() as tape: loss = tf.reduce_mean((x @ kernel - y) ** 2)
    return tape.gradient(loss, two.experimental_local_results(kernel)[0])
for _, batch in zip(range(12), spread()): two.run(bare, args=batch)
""",
    "Keras on two devices": """
with two.scope():
    layers = [tf.keras.layers.Dense(4, trainable=False), tf.keras.layers.Dense(1, dtype="mixed_float16")]
    spread_net = tf.keras.Sequential([tf.keras.layers.Input((8,)), *layers], name="spread_net")
    spread_net.compile("adam", "mse")
spread_net.fit(data(12), verbose=0)
""",
    "Keras frozen later": """
frozen_net = tf.keras.Sequential(
    [tf.keras.layers.Input((8,)), tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)], name="frozen_net")
frozen_net.layers[0].trainable = False
frozen_net.compile("adam", "mse")
frozen_net.fit(data(12), verbose=0)
""",
    "a generator in a graph": """
def examples():
    while True: yield np.zeros([6, 8]), np.zeros([6, 1])
made = tf.data.Dataset.from_generator(
    examples, output_signature=(tf.TensorSpec([None, 8]), tf.TensorSpec([None, 1])))
@tf.function
def pull(batches): return train(*next(batches))
batches = iter(made.map(lambda x, y: (2 * x, y)).prefetch(2))
for _ in range(12): pull(batches)
""",
    "train_on_batch": """
batch_net = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)], name="batch_net")
batch_net.compile("sgd", "mse")
for x, y in data(12): batch_net.train_on_batch(x, y)
""",
    "legacy Keras": """
import tf_keras
with two.scope():
    legacy = tf_keras.Sequential([tf_keras.layers.Input((8,)), tf_keras.layers.Dense(1)], name="legacy")
    legacy.compile("adam", "mse")
legacy.fit(data(12), verbose=0)
""",
    "pinned ops": """
with two.scope(): kernel = tf.Variable(tf.ones([4, 1]))
body = replica(kernel)
def pinned(x, y):
    with tf.device("/cpu:1"): return body(x, y)
@tf.function
def together(batch): return two.run(pinned, args=batch)
for _, batch in zip(range(12), spread()): together(batch)
""",
    "one replica": """
one = tf.distribute.MirroredStrategy(["/cpu:0"])
with one.scope(): kernel = tf.Variable(tf.ones([8, 1]))
body = replica(kernel)
@tf.function
def lonely(x, y): return one.run(body, args=(x, y))
for x, y in data(12): lonely(x, y)
""",
}
REASONS = {
    "all on one device": ("unused_strategy", "outside_scope"),
    "one replica": ("one_replica",),
    "pinned ops": ("replicas_together",),
    "two replicas": (),
    # Both replicas compute, and take turns at the variables that they share.
    "outside the scope": (),
}
"""Why one device computes all gradients."""


Runs = dict[str, Captured]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    scripts = {name: Script(START + MORE + text, "4:6") for name, text in KINDS.items()}
    return captured_scripts(tmp_path_factory.mktemp("placement"), scripts, NCCL_TEST_TOKEN="abc")


def function_of(groups: dict[str, Any]) -> dict[str, Any]:
    """The one function whose placement a sidecar has."""
    (function,) = groups["placement"]["functions"]
    assert isinstance(function, dict)
    return function


def test_mirrored_variables_and_ops_on_each_device(runs: Runs) -> None:
    groups = runs["two replicas"].sidecar
    function = function_of(groups)
    assert (function["step"], function["name"]) == ("both", "both")
    ops = function["ops_per_device"]
    assert set(ops) == {f"{CPU}0", f"{CPU}1"}
    assert ops[f"{CPU}0"] == ops[f"{CPU}1"] > 10
    assert function["not_mirrored"] == 0
    strategy = groups["strategy"]
    assert (strategy["class"], strategy["found_by"]) == ("MirroredStrategy", "variables")
    assert (strategy["replicas"], strategy["devices"]) == (2, [f"{CPU}0", f"{CPU}1"])
    assert strategy["cross_device_ops"] == "CollectiveAllReduce"


def test_a_variable_outside_the_scope_is_seen(runs: Runs) -> None:
    groups = runs["outside the scope"].sidecar
    assert function_of(groups)["not_mirrored"] == 1
    strategy = groups["strategy"]
    assert (strategy["found_by"], strategy["replicas"]) == ("input", 2)


def test_everything_on_one_device_is_seen(runs: Runs) -> None:
    groups = runs["all on one device"].sidecar
    function = function_of(groups)
    (device,) = function["ops_per_device"]
    assert device.endswith("/device:CPU:1")
    # The script has made a strategy, and does not use it.
    assert groups["strategy"]["found_by"] == "memory"


def test_a_function_that_strategy_run_is_given_eagerly(runs: Runs) -> None:
    function = function_of(runs["replicas run eagerly"].sidecar)
    assert set(function["ops_per_device"]) >= {f"{CPU}0", f"{CPU}1"}


@pytest.mark.parametrize(
    ("name", "batch", "parameters"),
    [
        ("two replicas", (16, 8, "dataset"), 4),
        ("all on one device", (8, 8, "arguments"), 8),
        ("replicas run eagerly", (12, 6, "arguments"), 4),
        ("batches from a function", (16, 8, "dataset"), 4),
        # What runs eagerly has no graph.
        ("no graph", (16, 8, "arguments"), None),
        ("Keras on two devices", (8, 4, "dataset"), 5),
        ("Keras frozen later", (8, 8, "dataset"), 5),
        ("train_on_batch", (8, 8, "arguments"), 9),
        ("a generator in a graph", None, 8),
        ("legacy Keras", (8, 4, "dataset"), 9),
    ],
)
def test_batches_and_what_trains(
    name: str, batch: tuple[int, int, str] | None, parameters: int | None, runs: Runs
) -> None:
    groups = runs[name].sidecar
    branches = groups["batch"].pop("branches")
    if name == "train_on_batch" and groups["versions"]["keras"].startswith("2."):
        # Keras 2 makes a dataset of the one batch.
        batch = (8, 8, "dataset")
    keys = ("global", "per_replica", "found_by")
    assert groups["batch"] == (dict(zip(keys, batch, strict=True)) if batch else {})
    functions = [each for branch in branches for each in branch["functions"] if each["line"]]
    # The others are of TensorFlow and Keras.
    assert len(functions) == (name == "a generator in a graph")
    for function in functions:
        assert function["line"].endswith(" in <lambda>")
        assert {*function["line_of"].values()} == {function["line"]}
    assert not any(each["draws"] for branch in branches for each in branch["functions"])
    assert groups["training"].get("parameters") == parameters
    assert groups["training"].get("gradient_bytes") == (parameters and 4 * parameters)
    assert (groups["placement"]["functions"] == []) is (parameters is None)


def test_the_environment(runs: Runs) -> None:
    groups = runs["two replicas"].sidecar
    assert groups["variables"]["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "NCCL_TEST_TOKEN" not in groups["variables"]
    assert groups["versions"]["tensorflow"].startswith("2.")
    assert "nccl" not in groups["versions"]
    assert groups["precision"]["policy"]["keras"] == "float32"
    assert groups["xla"]["auto_jit"] == "off"
    assert groups["devices"]["logical"] == ["/device:CPU:0", "/device:CPU:1"]
    assert groups["devices"]["physical"][0]["logical_devices"] == 2
    assert "cluster" not in groups


@pytest.mark.parametrize("name", KINDS)
def test_the_sidecar_is_read_whole(name: str, runs: Runs) -> None:
    """No listener has failed, and no field is of another type than it is read with."""
    assert "listeners" not in runs[name].sidecar["notes"]
    report = traceview.analyze(runs[name].run)
    assert [problem.code for problem in report.capture.problems] == ["no-gpu-plane"]
    assert report.results.environment is not None
    (host,) = report.results.environment.hosts
    assert host.command.script[0].endswith(".py")
    assert (host.versions.tensorflow or "").startswith("2.")
    assert host.devices.logical == ("/device:CPU:0", "/device:CPU:1")
    assert "options-ignored" not in [finding.code for finding in report.findings]


@pytest.mark.parametrize(("name", "reasons"), REASONS.items())
def test_why_one_device_computes_all_gradients(
    name: str, reasons: tuple[str, ...], runs: Runs
) -> None:
    findings = traceview.analyze(runs[name].run).findings
    found = [
        (each.severity, tuple(each.sentences[3:]))
        for each in findings
        if each.code == "single-gpu-gradients"
    ]
    assert found == [("critical", reasons)] * bool(reasons)
