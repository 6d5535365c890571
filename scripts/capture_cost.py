"""Measure what `traceview capture` costs a training: its start, each step before the window, and the window.

    python scripts/capture_cost.py [hooks] [jax] [start] [--rounds N] [--most-us 15]

Needs an environment with TensorFlow (``tensorflow-cpu`` will do) and traceview, and JAX for ``jax``. Prints medians, as in the
table in docs/capture.md, and quartiles. Everything is measured with a capture and without one, in turn, so that both see
the same load of the machine. The exit code is 1 if hooks cost a step more than ``--most-us``.

- ``hooks``: TensorFlow's own work in a step takes a hundred times as long as the hooks, and varies by more than they
  cost. So it is left out: calls and requests for input return at once. The time of a real step is printed beside.
- ``jax``: the same for calls of a compiled function, which are short enough to be measured as they are. Both by processor
  time, because JAX's own threads run meanwhile.
- ``start``: a script that trains a small Keras model, by the processor time of its main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns, thread_time_ns
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from traceview.capture.steps.hooks import DATASET_NEXT, FUNCTION_CALL, Hooks
from traceview.capture.steps.observer import Observer
from traceview.capture.window.step_window import StepRange, StepWindow

CALLS = 300
"""Of one round, with hooks and without."""
FAR = 1 << 40
Step = Callable[[], Any]


class Nothing:
    """The recording of a window that never opens."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: the window opened")


RESULT = SimpleNamespace(has_value=lambda: True, get_value=lambda: None)
"""What Keras asks of a result."""


def row(what: str, values: list[float], unit: str, note: str = "") -> float:
    """Print a row of the table; returns the median."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    digits = 3 if unit == "s" else 1
    cells = f"{middle:.{digits}f} {unit} | {low:.{digits}f} to {high:.{digits}f} | {len(values)}"
    print(f"| {what} | {cells} | {note} |", flush=True)
    return middle


def nanoseconds(step: Step, calls: int, clock: Callable[[], int] = thread_time_ns) -> float:
    """Nanoseconds of a step, mean of a short round: of processor time of this thread, or by another clock."""
    begun = clock()
    for _ in range(calls):
        step()
    return (clock() - begun) / calls


def hook_cost(
    name: str, step: Step, window: StepWindow, hooked: Callable[[], Any], rounds: int
) -> float:
    """Print what the hooks add to a step; returns the median, in microseconds. `hooked`: a context in which they are installed."""
    added = []
    real = median(nanoseconds(step, CALLS // 10, perf_counter_ns) for _ in range(rounds)) / 1e3
    with empty_methods() if "jax" not in name.lower() else ExitStack():
        before = window.next_number
        for _ in range(rounds):
            without = nanoseconds(step, CALLS)
            with hooked():
                added.append((nanoseconds(step, CALLS) - without) / 1e3)
    if window.next_number - before < (CALLS - 1) * rounds:
        raise SystemExit(
            f"{name}: the hooks saw {window.next_number - before} steps of {CALLS * rounds}"
        )
    return row(f"hooks, {name}", added, "µs", f"a step of {real:.0f} µs")


@contextmanager
def empty_methods() -> Iterator[None]:
    """Make calls of functions and requests for input return at once."""
    with ExitStack() as stack:
        for place in (FUNCTION_CALL, DATASET_NEXT):
            owner = getattr(import_module(place.module), place.class_name)
            stack.enter_context(patch.object(owner, place.method, lambda *_: RESULT))
        yield


def loops(tf: Any) -> dict[str, tuple[Step, Step]]:
    """Kinds of loops by name: what shows them to new hooks, and one step with its wait for input."""
    weights = tf.Variable(tf.ones([8, 1]))
    batch = tf.ones([4, 8])

    def gradient_step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ weights)
        weights.assign_sub(0.001 * tape.gradient(loss, weights))

    plain = tf.function(gradient_step)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    batches = iter(data)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    pairs = iter(tf.data.Dataset.from_tensors((batch, tf.ones([4, 1]))).repeat())
    found: dict[str, tuple[Step, Step]] = {
        "tf.function": (lambda: None, lambda: plain(next(batches))),
    }
    if getattr(find_spec("keras.src.backend"), "submodule_search_locations", None):  # Keras 3
        # `make_train_function` is looked up when it is called, because the hooks replace it.
        found["Keras fit"] = lambda: model.make_train_function(), fit_step(model, pairs)
    return found


def fit_step(model: Any, pairs: Any) -> Step:
    """A step as in Keras' `fit`: its epoch iterator hands out the call, its train function runs it."""
    trainer = import_module("keras.src.backend.tensorflow.trainer")
    epoch = trainer.TFEpochIterator.__new__(trainer.TFEpochIterator)
    epoch._num_batches, epoch._steps_seen = FAR, 0
    epoch._epoch_iterator = repeat((0, 1, pairs))

    def step() -> None:
        _, _, iterator = next(epoch)
        model.train_function(iterator)

    return step


def hooks(rounds: int) -> list[float]:
    """The hooks of TensorFlow; microseconds of each kind of loop."""
    tf = import_module("tensorflow")
    costs = []
    for name, (show, step) in loops(tf).items():
        window = StepWindow(StepRange(FAR, FAR + 1), Nothing())
        observer = Observer(window, ())

        @contextmanager
        def hooked(observer: Observer = observer, show: Step = show) -> Iterator[None]:
            installed = Hooks(observer)
            installed.install()
            show()
            yield
            installed.remove()

        with hooked():
            step()  # is traced, and recognized as a step from now on
        costs.append(hook_cost(name, step, window, hooked, rounds))
    return costs


def jax_hooks(rounds: int) -> list[float]:
    """The hooks of JAX; microseconds of a call."""
    jax = import_module("jax")
    jax_steps = import_module("traceview.capture.jax.steps")
    weights, batch = jax.numpy.ones((32, 32)), jax.numpy.ones((8, 32))
    update = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w))
    window = StepWindow(StepRange(FAR, FAR + 1), Nothing())
    steps = jax_steps.JaxSteps(window)

    @contextmanager
    def hooked() -> Iterator[None]:
        installed = jax_steps.JaxHooks(steps)
        installed.install()
        yield
        installed.remove()

    with hooked():
        update(weights, batch)
    return [hook_cost("JAX jit", lambda: update(weights, batch), window, hooked, rounds)]


SCRIPT = """
import time
import tensorflow as tf
marks = []
class Marks(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        marks.append(time.thread_time())
layers = [tf.keras.layers.Input((64,)), *(tf.keras.layers.Dense(64, activation="relu") for _ in range(8))]
model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
data = tf.data.Dataset.from_tensors((tf.ones([32, 64]), tf.ones([32, 1]))).repeat(60)
model.fit(data, callbacks=[Marks()], verbose=0)
print(marks[0])
"""


def ran(folder: Path, *options: str) -> float:
    """Seconds of processor time up to the first step."""
    command = [sys.executable, *options, "train.py"]
    said = subprocess.check_output(command, cwd=folder, text=True, stderr=subprocess.DEVNULL)
    return float(said.splitlines()[-1])


def start(rounds: int) -> list[float]:
    """The start, and the sampling thread in a window of ten steps."""
    added: list[float] = []
    shares: list[float] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        for number in range(rounds):
            alone, out = ran(folder), str(number)
            capture = ("-m", "traceview", "capture", "--steps", "20:30", "--output", out)
            added.append(ran(folder, *capture) - alone)
            (sidecar,) = (folder / out).rglob("*.traceview.json")
            python = json.loads(sidecar.read_text("utf-8"))["python"]
            shares.append(100 * python["cost_ns"] / python["window_ns"])
    row("start to the first step", added, "s", "processor time of the main thread")
    row("sampling thread, window of 10 steps", shares, "% of a core")
    return []


PARTS: dict[str, tuple[Callable[[int], list[float]], int]] = {
    "hooks": (hooks, 50),
    "jax": (jax_hooks, 50),
    "start": (start, 4),
}
"""What measures each part, and how many rounds of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all without any")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--most-us", type=float, default=15.0, help="for the hooks, a step")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    print("| what | median | quartiles | rounds | of |\n|---|---|---|---|---|")
    costs: list[float] = []
    for name in options.parts or PARTS:
        measure, rounds = PARTS[name]
        costs += measure(options.rounds or rounds)
    sys.exit(max(costs, default=0.0) > options.most_us)


if __name__ == "__main__":
    main()
