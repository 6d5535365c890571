"""Scripts with the real TensorFlow that end in every way, and what they say, with and without capture."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.capture.conftest import CAPTURE, TWO_REPLICAS, line_of, run_python, started
from tests.capture.recorded_markers import markers_of

pytestmark = pytest.mark.tensorflow

LOOP = """
import ctypes
import tensorflow as tf
weights = tf.Variable(tf.ones([8, 1]))
@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(x @ weights)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
for number in range(30):
    if number == 12:
        print("hangs", flush=True)
        HANGS
    train_step(tf.ones([4, 8]))
"""
QUEUE = "tf.queue.FIFOQueue(1, tf.float32).dequeue()"
# Locks a mutex twice: no signal brings it back.
MUTEX = "[ctypes.PyDLL(None).pthread_mutex_lock(mutex) for mutex in [ctypes.create_string_buffer(64)] * 2]"


@pytest.mark.parametrize("hangs", [QUEUE, MUTEX], ids=["a queue", "a mutex"])
def test_a_termination_ends_a_script_that_hangs(hangs: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP.replace("HANGS", hangs), encoding="utf-8")
    with started(tmp_path, sys.executable, *CAPTURE, "train.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        _, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 40
    assert process.returncode == -signal.SIGTERM
    if hangs == QUEUE:
        assert markers_of(Path(err.splitlines()[-1])) == [9, 10, 11]
    else:
        assert "a native call holds Python's lock, so the profile is not saved" in err


FIT = """
import sys, time
import tensorflow as tf
import traceview
tf.keras.utils.set_random_seed(1)

class Ends(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 7:
            raise error

def fit(out):
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([4, 8]), tf.ones([4, 1]))).repeat(20)
    callback = traceview.keras_callback(out, range(5, 10))
    callbacks.append(callback)
    model.fit(data, callbacks=[callback, Ends()], verbose=0)

callbacks = []
for error in (ValueError("wrong"), KeyboardInterrupt(), tf.errors.InternalError(None, None, "wrong")):
    try:
        fit(f"logs{len(callbacks)}")
    except BaseException as caught:
        kept = caught
    deadline = time.monotonic() + 60
    while callbacks[-1].session.run is None and time.monotonic() < deadline:
        time.sleep(0.05)
    print(callbacks[-1].session.run)
    # The frames of `fit` stay alive, as in a notebook.
    print(type(kept).__name__)
error = SystemExit(3)
fit("logs3")
"""


def test_a_fit_that_ends_by_an_exception_keeps_its_trace(tmp_path: Path) -> None:
    done = run_python(tmp_path, "train.py", script=FIT, code=3)
    lines = done.out.splitlines()
    assert lines[1::2] == ["ValueError", "KeyboardInterrupt", "InternalError"]
    runs = [tmp_path / line for line in lines[::2]]
    runs += [path.parent for path in (tmp_path / "logs3").rglob("*.xplane.pb")]
    assert [markers_of(run) for run in runs] == [[4, 5, 6, 7]] * 4
    line = line_of(FIT, "callback = traceview.keras_callback")
    assert f"train.py:{line}: CaptureWarning: only steps 5:8 of the requested" in done.err


DEFINED = (
    TWO_REPLICAS
    + """
import json
tf.random.set_seed(1)
with strategy.scope():
    weights = tf.Variable(tf.ones([8, 1]))
@tf.function
def inner(x):
    return tf.debugging.check_numerics(x @ weights, "not finite")
def replica(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(inner(x))
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.01 * tf.distribute.get_replica_context().all_reduce("sum", gradient))
    return loss
@tf.function
def step(x):
    return strategy.run(replica, args=(x,))
losses = [float(step(tf.random.normal([4, 8])).values[0]) for _ in range(20)]
def frames(function, x):
    graph = function.get_concrete_function(x).graph
    return [[(frame.filename, frame.name) for frame in op.traceback] for op in graph.get_operations()]
# Traced in the window, and after it.
x = tf.ones([4, 8])
print(json.dumps([losses, weights.numpy().tolist(), frames(step, x), frames(inner, x), frames(step, x[1:])]))
try:
    step(x * float("nan"))
except tf.errors.InvalidArgumentError as error:
    print(str(error).partition("defined at")[2].partition("not finite")[0])
"""
)


def test_ops_are_defined_where_they_are_without_capture(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    alone, captured = (
        run_python(tmp_path, *command, script, script=DEFINED, code=0) for command in ((), CAPTURE)
    )
    assert "train.py" in alone.out
    assert "most recent call last" in alone.out
    assert captured.out == alone.out
    assert captured.err.splitlines()[-1].startswith(str(captured.logdir))
