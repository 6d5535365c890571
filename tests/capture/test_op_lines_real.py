"""Each line that a real capture gives an op is the one that made it; what the script did not make itself has none."""

from __future__ import annotations

import pytest

import traceview
from tests.capture.conftest import TWO_REPLICAS, Captured, line_of
from tests.capture.in_process import Script, captured_scripts

pytestmark = pytest.mark.tensorflow

MODEL = """
import tensorflow as tf


class Block(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__(name="block")
        self.inner = tf.keras.layers.Dense(64, name="inner")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        hidden = self.inner(x)  # inner
        return tf.square(hidden)  # square


@tf.function
def product(x):
    return tf.matmul(x, x, transpose_b=True)  # product
"""

START = (
    TWO_REPLICAS
    + """
from model import Block, product

rows = tf.data.Dataset.from_tensors((tf.ones([32, 64]), tf.ones([32, 64]))).repeat(10).unbatch().batch(32)
"""
)

LOOP = """
with strategy.scope():
    block, weight = Block(), tf.Variable(tf.ones([64, 64]))
    block.build((None, 64))
    optimizer = tf.keras.optimizers.SGD(momentum=0.9)
    optimizer.build([weight])


def replica_step(x, y):
    with tf.GradientTape() as tape:
        made = tf.matmul(block(x), weight)  # made
        for _ in tf.range(2):  # range
            made = made + tf.matmul(product(made), made)  # loop
        loss = tf.reduce_mean((made - y) ** 2)  # loss
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])  # update
    return loss


@tf.function
def train_step(x, y):
    return strategy.run(replica_step, args=(x, y))


for x, y in strategy.experimental_distribute_dataset(rows):
    train_step(x, y)
"""

KERAS = """
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(64, name="dense"), Block()])
    model.compile("adam", "mse")
model.fit(rows, verbose=0)
"""

READS = """
with strategy.scope():
    kept = tf.Variable(tf.zeros([4096]), trainable=False, aggregation=tf.VariableAggregation.MEAN)
    weight = tf.Variable(tf.ones([64, 64]))
    optimizer = tf.keras.optimizers.SGD()
    optimizer.build([weight])


def replica_step(x, y):
    kept.assign(tf.concat([kept[64:], x[0]], 0))  # kept
    shown = tf.reduce_sum(tf.sin(kept.read_value()))  # sine
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, weight) - y) ** 2) + shown
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
    return loss


@tf.function
def train_step(x, y):
    return strategy.run(replica_step, args=(x, y))


for x, y in strategy.experimental_distribute_dataset(rows):
    train_step(x, y)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    programs = {"loop": LOOP, "keras": KERAS, "reads": READS}
    scripts = {name: Script(START + text, "4:8", model=MODEL) for name, text in programs.items()}
    return captured_scripts(tmp_path_factory.mktemp("lines"), scripts, is_forked=True)


def lines_by_op(run: Captured) -> dict[str, set[str | None]]:
    """The places of the lines of ops by name, on both replicas; None for no line."""
    found: dict[str, set[str | None]] = {}
    ops = traceview.load(run.run).table("ops", window="trace")
    for op, source in zip(ops["op"], ops["source_line"], strict=True):
        place = None if not isinstance(source, str) else source.partition(" in ")[0]
        found.setdefault(op, set()).add(place)
    return found


def of(found: dict[str, set[str | None]], *ends: str) -> set[str | None]:
    """The places of the ops whose name ends so."""
    places = [places for op, places in found.items() if op.endswith(ends)]
    assert places, (ends, list(found))
    return set().union(*places)


def test_a_loop_of_replicas_with_its_gradients_and_updates(runs: dict[str, Captured]) -> None:
    run = runs["loop"]
    graphs = run.sidecar["graphs"]
    made = [*zip(graphs["lines"], graphs["callers"], strict=True)]
    assert len(set(made)) == len(made) <= 12
    callers = {
        mark: {
            caller
            for line, caller in made
            if line.startswith(f"model.py:{line_of(MODEL, f'# {mark}')} in ")
        }
        for mark in ("square", "product")
    }
    asked = f"train.py:{line_of(START + LOOP, '# made')} in replica_step"
    assert asked in callers["square"], made
    assert callers["product"] == {""}, "what is traced by itself may be called anywhere"
    found = lines_by_op(run)

    def place(mark: str) -> set[str | None]:
        return {f"train.py:{line_of(START + LOOP, f'# {mark}')}"}

    assert found["MatMul"] == place("made")
    assert of(found, "gradient_tape/MatMul/MatMul_1") == place("made")
    assert of(found, "while/MatMul") == place("loop")
    assert of(found, "gradients/while/MatMul_grad/MatMul_1") == place("loop")
    assert of(found, "Mean", "pow") == place("loss")
    # Keras 3 numbers layers in names, Keras 2 does not.
    is_keras_3 = "block_1/Square" in found
    squares = (op for op in found if op in ("block_1/Square", "block/Square"))
    assert of(found, *squares) == {f"model.py:{line_of(MODEL, '# square')}"}
    assert of(found, "block_1/inner_1/BiasAdd", "block/inner/BiasAdd") == {
        f"model.py:{line_of(MODEL, '# inner')}"
    }
    assert of(found, "PartitionedCall/MatMul") == {f"model.py:{line_of(MODEL, '# product')}"}
    updates = {op for op in found if op.lower().startswith("sgd/") and "update" in op}
    assert updates
    # Keras 2 updates outside of what the replica runs.
    assert set().union(*(found[op] for op in updates)) == (
        place("update") if is_keras_3 else {None}
    )
    assert of(found, "AddN") == place("range")


def test_keras_names_lines_of_own_layers_alone(runs: dict[str, Captured]) -> None:
    run = runs["keras"]
    found = lines_by_op(run)
    own = {op: places for op, places in found.items() if "/block" in op}
    assert set().union(*own.values()) - {None} == {
        f"model.py:{line_of(MODEL, f'# {mark}')}" for mark in ("inner", "square")
    }
    gradients = [
        f"{name}/{end}"
        for name in ("inner", "inner_1")
        for end in ("MatMul/MatMul", "BiasAdd/BiasAddGrad")
    ]
    assert of(found, *gradients) == {f"model.py:{line_of(MODEL, '# inner')}"}
    others = [places for op, places in found.items() if op not in own]
    assert others
    assert set().union(*others) == {None}, "no line but that of fit"
    layers = traceview.load(run.run).table("layers")
    assert layers["source_line"].dropna().str.startswith("model.py:").all()
    # As `model.summary()` calls them, and not as graphs do: `sequential_1/block_1`.
    assert set(layers["layer"].dropna()) >= {"sequential/dense", "sequential/block/inner"}


def test_a_variable_that_is_read_first_says_nothing_of_other_ops(
    runs: dict[str, Captured],
) -> None:
    """`kept[64:]` reads the variable in no scope."""
    found = lines_by_op(runs["reads"])
    for end, mark in (("concat", "kept"), ("Sin", "sine")):
        assert of(found, end) == {f"train.py:{line_of(START + READS, f'# {mark}')}"}
