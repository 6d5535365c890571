"""Real captures. TensorFlow takes seconds to import, so that many situations share a process."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.capture.conftest import CAPTURE, Captured, run_python
from tests.capture.in_process import Script, captured_scripts
from tests.capture.recorded_markers import markers_of
from tests.oracle import run_answer

pytestmark = pytest.mark.tensorflow

START = """
import tensorflow as tf

try:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
except RuntimeError:
    pass  # an earlier script of this process did

def data(batches=None):
    features, labels = tf.random.normal([64, 8]), tf.random.normal([64, 1])
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(8)
    return dataset if batches is None else dataset.take(batches)

def model(keras=tf.keras, **compiled):
    layers = [keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)]
    made = keras.Sequential(layers, name='net')
    made.compile(optimizer="sgd", loss="mse", **compiled)
    return made

def loss_of(x, y):
    return tf.reduce_mean((x @ weights - y) ** 2)

def train(x, y, count=1):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss

def train_replica(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    context = tf.distribute.get_replica_context()
    weights.assign_sub(0.01 * context.all_reduce("sum", tape.gradient(loss, weights)))
    return loss

def mirrored():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        variable = tf.Variable(tf.ones([8, 1]))
    return strategy, variable, strategy.experimental_distribute_dataset(data())

weights = tf.Variable(tf.ones([8, 1]))
"""
LOOP_ON_TWO = """
strategy, weights, dataset = mirrored()
@tf.function
def train_step(batch):
    return strategy.run(train_replica, args=batch)
"""
ACCUMULATED = """
optimizer = tf.keras.optimizers.SGD(0.01)
def gradient_of(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    return tape.gradient(loss, weights)
step, total = train_step, 0
for number, (x, y) in enumerate(data(60)):
    total += step(x, y)
    if number % 3 == 2:
        optimizer.apply_gradients([(total / 3, weights)])
        total = 0
"""


SEED = "import tensorflow as tf\ntf.keras.utils.set_random_seed(7)\n"
RESULT = "\nprint('RESULT', float(loss), weights.numpy().tobytes().hex())\n"


@dataclass(frozen=True)
class Kind:
    """A script, its step function, the window that is asked of it, and what comes: the steps with their edges."""

    script: str
    function: str
    window: str = "4:7"
    numbers: Sequence[int] = (3, 4, 5, 6, 7)
    said: str = ""
    step_function: str = ""


WITH_RESULTS = {
    "eager": Kind(
        """
for epoch in range(4):
    for x, y in data(8): loss = train(x, y)
    for x, y in data(3): loss_of(x, y)
""",
        "GradientTape",
    ),
    "a concrete function": Kind(
        """
step, test = (tf.function(f).get_concrete_function(*data().element_spec) for f in (train, loss_of))
for x, y in data(20): loss = step(x, y); test(x, y)
""",
        "train",
    ),
    "a saved function": Kind(
        """
import tempfile
class Module(tf.Module):
    @tf.function
    def step(self, x, y): return train_on(self.weights, x, y)
def train_on(weights, x, y):
    with tf.GradientTape() as tape: loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss
module, folder = Module(), tempfile.mkdtemp()
module.weights = weights
tf.saved_model.save(module, folder, module.step.get_concrete_function(*data().element_spec))
loaded = tf.saved_model.load(folder)
step = loaded.signatures["serving_default"]
for x, y in data(20): loss = step(x=x, y=y)["output_0"]
weights = loaded.weights
""",
        "signature_wrapper",
    ),
    "a thread": Kind(
        """
import threading
def loop():
    global loss
    step = tf.function(train)
    for x, y in data(20): loss = step(x, y)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
""",
        "train",
        said="another thread than the main one trains",
    ),
    "fit": Kind(
        """
made = model()
history = made.fit(data(5), epochs=3, validation_data=data(2), verbose=0).history
loss, weights = history["val_loss"][-1], made.layers[0].kernel
code = getattr(made.train_function, "__code__", None)
assert code is None or "traceview/capture" not in code.co_filename
""",
        "net",
        "6:9",
        [5, 6, 7, 8, 9],
    ),
    "train_on_batch": Kind(
        """
made = model()
for x, y in data(12): loss = made.train_on_batch(x, y)
weights = made.layers[0].kernel
""",
        "net",
    ),
}
"""Those that leave `loss` and `weights`, which are the same without a capture."""
KINDS = {
    **WITH_RESULTS,
    "function": Kind(
        """
step, evaluate = tf.function(train), tf.function(loss_of)
for epoch in range(3):
    for x, y in data(5): step(x, y, count=1)
    for x, y in data(3): evaluate(x, y)
""",
        "train",
    ),
    "accumulated gradients": Kind(
        """
optimizer, total = tf.keras.optimizers.Adam(), tf.Variable(tf.zeros([8, 1]))
optimizer.build([weights])
@tf.function
def add(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    total.assign_add(tape.gradient(loss, weights))
@tf.function
def apply():
    optimizer.apply_gradients([(total / 3, weights)])
    total.assign(tf.zeros([8, 1]))
evaluate = tf.function(loss_of)
for number, (x, y) in enumerate(data(60)):
    add(x, y)
    if number % 3 == 2: apply()
    if number == 17:
        for x, y in data(3): evaluate(x, y)
""",
        "apply",
        said="a step is about 3 calls of add and one of apply, which updates variables; --step-function NAME",
    ),
    "gradients of a function, applied outside": Kind(
        ACCUMULATED.replace("train_step", "tf.function(gradient_of)"),
        "GradientTape",
        said="a step is about 3 calls of gradient_of and an update by the optimizer",
    ),
    "an optimizer beside the step": Kind(
        """
optimizer, beside = (tf.keras.optimizers.SGD(0.01) for _ in range(2))
other = tf.Variable(1.0)
optimizer.build([weights])
@tf.function
def whole_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
for x, y in data(12):
    whole_step(x, y)
    beside.apply_gradients([(tf.constant(1.0), other)])
""",
        "whole_step",
    ),
    "a loop in a function": Kind(
        """
step, few = tf.function(train), data(3)
step.get_concrete_function(*few.element_spec)
@tf.function
def epoch():
    for x, y in few: step(x, y)
for _ in range(12): epoch()
""",
        "epoch",
        said="one call of epoch counts as one step, but runs a whole training loop inside its graph",
    ),
    "strategy.run in a loop in a function": Kind(
        LOOP_ON_TWO
        + """
@tf.function
def epoch(batches):
    for _ in range(3): strategy.run(train_replica, args=next(batches))
batches = iter(dataset)
for number in range(12): epoch(batches)
""",
        "epoch",
        said="one call of epoch counts as one step, but calls strategy.run 3 times in its graph",
    ),
    "strategy.run in a loop in the graph": Kind(
        LOOP_ON_TWO
        + """
@tf.function
def epoch(batches):
    for _ in tf.range(3): strategy.run(train_replica, args=next(batches))
batches = iter(dataset)
for number in range(12): epoch(batches)
""",
        "epoch",
        said="one call of epoch counts as one step, but runs a whole training loop inside its graph",
    ),
    "strategy.run of a function": Kind(
        """
strategy, weights, dataset = mirrored()
replica, test_replica = tf.function(train_replica), tf.function(loss_of)
for number, batch in zip(range(12), dataset):
    strategy.run(replica, args=batch)
    strategy.run(fn=test_replica, args=batch)
""",
        "train_replica",
    ),
    "steps_per_execution, a short last call": Kind(
        "model(steps_per_execution=5).fit(data(32), epochs=3, verbose=0)",
        "net",
        "70:80",
        [62, 64, 69, 74, 79, 84],
        said="steps 69:84 were recorded instead of 70:80",
    ),
    "fit without functions": Kind("model(run_eagerly=True).fit(data(12), verbose=0)", "net"),
    "a train function of its own": Kind(
        """
class Mine(tf.keras.Sequential):
    def make_train_function(self, force=False):
        if self.train_function is None:
            self.train_function = tf.function(lambda batches: self.train_step(next(batches)))
        return self.train_function  # Keras 2 takes what is returned
made = Mine([tf.keras.layers.Dense(1)])
made.compile("sgd", "mse")
made.fit(data(12), verbose=0)
""",
        "<lambda>",
    ),
    "two step functions": Kind(
        """
generate, judge = tf.function(lambda x, y: train(x, y)), tf.function(train)
for x, y in data(8): generate(x, y); judge(x, y)
""",
        "train",
        said="a step is a call of <lambda> and one of train, which train in turn; --step-function NAME",
    ),
    "one of two": Kind(
        """
generate, judge = tf.function(lambda x, y: train(x, y)), tf.function(train)
for x, y in data(12): generate(x, y); judge(x, y)
""",
        "train",
        step_function="train",
    ),
    "traced again": Kind(
        """
step = tf.function(train)
step.get_concrete_function(tf.TensorSpec([8, 8]), tf.TensorSpec([8, 1]))
for number, (x, y) in enumerate(data(12)):
    step(x[:3], y[:3]) if number == 5 else step(x, y)
""",
        "train",
        said="retraced in step 5",
    ),
    "its own profile in the window": Kind(
        """
import tempfile
step, own = tf.function(train), tempfile.mkdtemp()
for number, (x, y) in enumerate(data(20)):
    if number == 11: tf.profiler.experimental.start(own)
    if number == 16: tf.profiler.experimental.stop()
    with tf.profiler.experimental.Trace("train", step_num=number + 100, _r=1): step(x, y)
""",
        "train",
        "10:13",
        [9, 10, 11, 12, 13],
        said="was not recorded",
    ),
    "a TensorBoard callback": Kind(
        """
import glob, tempfile
own = tempfile.mkdtemp()
board = tf.keras.callbacks.TensorBoard(own, profile_batch=(2, 4))
model().fit(data(20), verbose=0, callbacks=[board])
assert len(glob.glob(own + "/**/*.xplane.pb", recursive=True)) == 1
""",
        "net",
        "10:13",
        [9, 10, 11, 12, 13],
    ),
}


Runs = dict[str, Captured]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every kind captured, one after the other in one process."""
    scripts = {
        name: Script(
            SEED + START + kind.script + RESULT * (name in WITH_RESULTS),
            kind.window,
            (kind.step_function,) * bool(kind.step_function),
        )
        for name, kind in KINDS.items()
    }
    return captured_scripts(tmp_path_factory.mktemp("kinds"), scripts)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Those that have a result without a capture, in another process."""
    scripts = {
        name: Script(SEED + START + kind.script + RESULT, "") for name, kind in WITH_RESULTS.items()
    }
    return captured_scripts(tmp_path_factory.mktemp("plain"), scripts)


def steps_of(run: Path) -> list[int]:
    """The numbers of all marked steps; and that the report leaves out those at the edges, and no more."""
    (trace,) = run.glob("*.xplane.pb")
    (sidecar,) = run.glob("*.traceview.json")
    marked = markers_of(run)
    edges = json.loads(sidecar.read_text(encoding="utf-8"))["window"]["edge_steps"]
    asked = [number for number in marked if number not in edges]
    answer = run_answer([trace])
    assert answer["steps"]["method"] == "marker"
    assert [n for step in answer["steps"]["steps"] if (n := step["number"]) not in edges] == asked
    steps: Any = traceview.analyze(run).results.steps
    assert [step.number for step in steps.steps] == asked
    return marked


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_loop_gives_exactly_its_steps(name: str, captured: Runs) -> None:
    row, kind = captured[name], KINDS[name]
    assert steps_of(row.run) == [*kind.numbers]
    sidecar = row.sidecar
    assert sidecar["state"] == "saved"
    (first, last), got = sidecar["window"]["asked"], sidecar["window"]["got"]
    assert got[0] <= first < last <= got[1]
    assert sidecar["hooks"]["missing"] == []
    functions = sidecar["steps"]["functions"]
    assert [f["name"] for f in functions if f["is_step"]] == [kind.function]
    assert kind.said in row.err
    coarse = [line for line in row.err.splitlines() if "counts as one step" in line]
    notes = [f"note: {line}" for line in sidecar["notes"].get("steps", [])]
    assert coarse == [line for line in notes if "counts as one step" in line]
    assert bool(coarse) == ("counts as one step" in kind.said)


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_a_captured_loop_trains_as_without_a_capture(
    name: str, captured: Runs, plain: Runs
) -> None:
    results = [re.findall("^RESULT .+", runs[name].out, re.MULTILINE) for runs in (plain, captured)]
    assert results[0] == results[1]
    assert len(results[0]) == 1


@pytest.mark.parametrize(
    "name", ["strategy.run in a loop in a function", "strategy.run in a loop in the graph"]
)
def test_a_loop_in_a_graph_runs_on_as_many_replicas_as_there_are(name: str, captured: Runs) -> None:
    trace = traceview.load(captured[name].run)
    assert [trace.device_key(device) for device in range(len(trace.device_list))] == [
        *("replica:0", "replica:1")
    ]


def test_no_op_of_traceview_is_in_a_recorded_step(captured: Runs) -> None:
    """The size of a batch is told by an op of TensorFlow, which is not run while steps are recorded."""
    traces = [trace for row in captured.values() for trace in row.run.glob("*.xplane.pb")]
    assert len(traces) == len(KINDS)
    assert [trace for trace in traces if b"ComputeBatchSize" in trace.read_bytes()] == []


def test_evaluation_between_steps_of_micro_batches_is_named(captured: Runs) -> None:
    steps = traceview.analyze(captured["accumulated gradients"].run).results.steps
    assert steps is not None
    assert steps.evaluated_steps == (5,)


HASHES = """
from tensorflow.core.function.polymorphism.function_type import FunctionType

hashed, own = [], FunctionType.__hash__
FunctionType.__hash__ = lambda self: hashed.append(1) or own(self)
train_step = tf.function(train)
counts = []
for _ in range(30):
    hashed.clear()
    train_step(tf.ones([4, 8]), tf.ones([4, 1]))
    counts.append(len(hashed))
print(counts[5:8], counts[15:18])
"""


def test_a_recorded_step_reads_no_types_of_the_function(tmp_path: Path) -> None:
    """To hash them takes a millisecond where a function captures hundreds of variables."""
    command = (*CAPTURE, "--steps", "12:20", "train.py")
    done = run_python(tmp_path, *command, script=START + HASHES)
    before, recorded = done.out.split("] [")
    assert before.strip("[]\n") == recorded.strip("[]\n")


API = """
from traceview.capture.api import keras_callback
import tf_keras
for keras, batches, compiled in (
    (tf.keras, 6, {}),
    (tf_keras, 6, {}),
    (tf.keras, 5, {"steps_per_execution": 3}),
    (tf_keras, 5, {"steps_per_execution": 3}),
):
    callback = keras_callback("logs", range(6, 9), keras=keras)
    model(keras, **compiled).fit(data(batches), epochs=3, verbose=0, callbacks=[callback])
    print(callback.session.run)
"""


def test_the_callback_of_keras(tmp_path: Path) -> None:
    done = run_python(tmp_path, "-c", START + API, code=0)
    runs = [tmp_path / line for line in done.out.splitlines()]
    assert [steps_of(run) for run in runs] == [[5, 6, 7, 8, 9]] * 2 + [[3, 5, 8, 10]] * 2
