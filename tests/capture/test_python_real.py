"""Real captures whose slow Python is known: the report has to name its line. The work is real."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import traceview
from tests.capture.conftest import TWO_REPLICAS, Captured, line_of
from tests.capture.in_process import Script, captured_scripts
from tests.python_sidecars import python_between_steps
from traceview.trace.columns import NONE
from traceview.trace.host.python_lines import python_lines
from traceview.trace.reading.load import load

pytestmark = pytest.mark.tensorflow

START = f"import numpy as np\n{TWO_REPLICAS}"
KERAS = (
    START
    + """
with strategy.scope():
    layers = [tf.keras.layers.Input((64,)), tf.keras.layers.Dense(256), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile("sgd", "mse")
"""
)

CALLBACK = (
    KERAS
    + """
class Plot(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        image = np.random.default_rng(batch).normal(size=(220, 220))
        np.linalg.svd(image)  # slow
model.fit(np.ones((1600, 64)), np.ones((1600, 1)), batch_size=64, verbose=0, callbacks=[Plot()])
"""
)

LOOP = (
    START
    + """
with strategy.scope():
    weights = tf.Variable(tf.ones((64, 64)))

@tf.function
def train_step(batch):
    def of_replica(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch @ weights) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss
    return strategy.run(of_replica, args=(batch,))

def count_words(count):
    total = 0
    for number in range(count):
        total += hash(str(number)) % 7  # slow
    return total

def main():
    dataset = tf.data.Dataset.from_tensors(tf.ones((16, 64))).repeat(25)
    for batch in strategy.experimental_distribute_dataset(dataset):
        train_step(batch)
        for _ in range(8):
            with tf.profiler.experimental.Trace("counting"):
                count_words(60_000)
            time.sleep(0.001)

import time
main()
"""
)

GENERATOR = (
    KERAS
    + """
def parse(number):
    words = {}
    for place in range(150_000):
        words[place % 97] = words.get(place % 97, 0) + place * number
    return np.full((64, 64), float(words[3] % 5), "float32")  # slow

def examples():
    for number in range(30):
        yield parse(number), np.ones((64, 1), "float32")

signature = (tf.TensorSpec((64, 64)), tf.TensorSpec((64, 1)))
dataset = tf.data.Dataset.from_generator(examples, output_signature=signature).prefetch(2)
model.fit(dataset, steps_per_epoch=25, verbose=0)
"""
)


SLEEPS = (
    KERAS
    + """
import time

def fetch(rows):
    time.sleep(0.03)  # slow
    return rows

def fetched(rows):
    rows = tf.ensure_shape(tf.numpy_function(fetch, [rows], tf.float32), (64, 64))
    return rows, rows[:, :1]

dataset = tf.data.Dataset.from_tensors(tf.ones((64, 64))).repeat().map(fetched).prefetch(2)
model.fit(dataset, steps_per_epoch=25, verbose=0)
"""
)

RETRACED = (
    START
    + """
weights = tf.Variable(tf.ones((64, 64)))

@tf.function
def train_step(batch, number):
    total = tf.reduce_sum(weights)
    with tf.GradientTape() as tape:
        for _ in range(60): batch = tf.tanh(batch @ weights) + float(number * sum(range(100_000)))  # slow
        total += tf.reduce_sum(batch)
    weights.assign_sub(0.01 * tape.gradient(total, weights))
    return total

for number in range(25):
    train_step(tf.ones((16, 64)), number // 2)
"""
)


BODIES = """
import queue, socket, threading, time, zlib
lock, work, (ours, theirs) = threading.Lock(), queue.Queue(), socket.socketpair()
begins = threading.Event()
PAYLOAD = np.random.default_rng(1).bytes(300_000)
def helper():
    while True:
        begins.wait()
        begins.clear()
        with lock: time.sleep(0.02)
        work.put(1)
        theirs.send(b"x")
threading.Thread(target=helper, daemon=True).start()
"""
WORK = {
    "sleep": ("time.sleep(0.02)", "waits"),
    "lock": ("begins.set(); time.sleep(0.001); lock.acquire(); lock.release()", "waits"),
    "queue": ("begins.set(); work.get()", "queue"),
    "socket": ("begins.set(); ours.recv(1)", "waits"),
    "zlib": ("zlib.compress(PAYLOAD, 9)", "runs"),
    "numpy": ("np.linalg.svd(np.random.default_rng(batch).normal(size=(220, 220)))", "runs"),
    "python": ("sum(hash(str(number)) for number in range(100_000))", "runs"),
}
"""What a callback does, and whether its thread waits, where a module shows it for what, or runs."""
COLLECTS = {
    "collects": "gc.collect()",
    "collects by new objects": "kept.append([[number] for number in range(300_000)])",
}


def callback(body: str, before: str) -> str:
    """A script whose callback does `body`."""
    slow = "        image = np.random.default_rng(batch).normal(size=(220, 220))\n        np.linalg.svd(image)"
    return CALLBACK.replace("class Plot", f"{before}\nclass Plot").replace(slow, f"        {body}")


PROGRAMS = {
    "callback": CALLBACK,
    "loop": LOOP,
    "generator": GENERATOR,
    "sleeps": SLEEPS,
    "retraced": RETRACED,
    **{name: callback(body, BODIES) for name, (body, _) in WORK.items()},
    **{
        name: callback(body, "import gc\nkept = []\nknown = [*gc.callbacks]")
        + "assert gc.callbacks == known\n"
        for name, body in COLLECTS.items()
    },
}
Runs = dict[str, Captured]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    # Threads of OpenBLAS wait for each other by spinning: on a busy machine that takes a minute.
    folder = tmp_path_factory.mktemp("python")
    scripts = {name: Script(text, "8:18") for name, text in PROGRAMS.items()}
    return captured_scripts(folder, scripts, OPENBLAS_NUM_THREADS="1", is_forked=True)


def test_a_callback_of_keras_is_named(runs: Runs) -> None:
    done = runs["callback"]
    expected = f"train.py:{line_of(CALLBACK, '# slow')} in on_train_batch_end"
    report = traceview.analyze(done.run)
    # The costliest: where more than one thread runs Python, what Keras does between steps may be another.
    stall = next(finding for finding in report.findings if finding.code == "callback-stall")
    between = python_between_steps(done.run)
    assert (between.line, stall.arguments["line"]) == (expected, between.argument)
    assert between.inner is not None
    assert "numpy/linalg/" in between.inner
    assert report.results.idle is not None
    for device in report.results.idle.devices:
        # A gap that no sample met has no line, and in a short one Keras itself may run.
        longest = [gap.python for gap in device.gaps if gap.state == "between"]
        assert longest.count(expected) > len(longest) / 2


@pytest.mark.parametrize(("name", "state"), [(name, state) for name, (_, state) in WORK.items()])
def test_what_waits_is_told_from_what_computes(runs: Runs, name: str, state: str) -> None:
    done = runs[name]
    report = traceview.analyze(done.run)
    # The costliest: where more than one thread runs Python, what Keras does between steps may be another.
    stall = next(finding for finding in report.findings if finding.code == "callback-stall")
    assert {"waits", "queue", "network"} & {*stall.sentences} == {state} - {"runs"}
    between = python_between_steps(done.run)
    assert stall.arguments["line"] == between.argument
    assert between.state == ("waits" if state == "queue" else state)


def test_python_in_a_loop_is_named_and_the_clocks_agree(runs: Runs) -> None:
    done = runs["loop"]
    between = python_between_steps(done.run)
    assert between.line == f"train.py:{line_of(LOOP, '# slow')} in count_words"
    assert between.inner is None

    trace = load(done.run)
    lines = python_lines(trace, 0)
    assert lines is not None
    columns = trace.host_columns
    rows = np.flatnonzero([trace.names.text(int(name)) == "counting" for name in columns.name])
    thread = lines.thread_of(int(columns.line[rows[0]]))
    assert thread != NONE
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    inside = lines.at(thread, start, end)
    assert inside is not None
    assert inside.frame.function == "count_words"
    assert inside.ratio > 0.9
    # Before and after the 80 markers the function does not run: half a millisecond earlier or later shows it.
    around = 500_000_000
    for shifted in (lines.at(thread, start - around, start), lines.at(thread, end, end + around)):
        assert shifted is not None
        assert shifted.frame.function != "count_words"


def test_a_generator_is_named(runs: Runs) -> None:
    report = traceview.analyze(runs["generator"].run)
    assert report.results.idle is not None
    named = Counter(
        gap.python.partition(" in ")[2]
        for device in report.results.idle.devices
        for gap in device.gaps
        if gap.state in ("input", "host_ops") and gap.python
    )
    assert named["parse"] > 0.5 * named.total() > 0, named
    # What Keras itself would do between the steps waits for the lock of the generator, too.
    costly = [each.code for each in report.findings if each.severity != "info"]
    assert costly == ["input-bound"]


def test_a_function_of_the_pipeline_that_sleeps_takes_no_core(runs: Runs) -> None:
    """Its native thread has processor time, so that what computes beside it is not said to wait for a core."""
    report = traceview.analyze(runs["sleeps"].run)
    (bound,) = (finding for finding in report.findings if finding.code == "input-bound")
    evidence = {row.metric: row.value for row in bound.evidence}
    assert bound.loss is not None
    assert float(evidence.get("slowed_ops_ps", 0)) < 0.5 * bound.loss.ps_per_step
    assert evidence["python_line"] == f"train.py:{line_of(SLEEPS, '# slow')} in fetch"


def test_a_function_that_is_traced_is_named_in_the_script(runs: Runs) -> None:
    """What runs is code that TensorFlow has made of it. The line computes for longer than the rest of a call, on any machine."""
    report = traceview.analyze(runs["retraced"].run)
    (finding,) = (finding for finding in report.findings if finding.code == "retracing")
    lines = [row.value for row in finding.evidence if row.metric == "python_line"]
    assert lines == [f"train.py:{line_of(RETRACED, '# slow')} in train_step"]
    assert "__autograph" not in report.to_json()
    assert finding.action.startswith("Pass a tensor instead of a Python number")


@pytest.mark.parametrize("name", COLLECTS)
def test_a_garbage_collection_is_named(name: str, runs: Runs) -> None:
    report = traceview.analyze(runs[name].run)
    (finding,) = (row for row in report.findings if row.code == "garbage-collection")
    assert finding.loss is not None
    assert finding.loss.states == ("garbage_collection",)
    assert finding.loss.ratio > 0.1


def test_collections_are_timed_in_the_window_alone(runs: Runs) -> None:
    done = runs["collects"]
    window_ns = done.sidecar["python"]["window_ns"]
    begun = [start_ns for start_ns, _, _ in done.sidecar["python"]["collections"]]
    assert len(begun) >= 10
    assert max(begun) - min(begun) < window_ns
