"""Measure what the hooks of `traceview capture` cost a step outside the window.

    python scripts/hook_cost.py [--calls 20000] [--most-us 15]

Needs an environment with TensorFlow (``tensorflow-cpu`` will do). TensorFlow's own work in a step takes a hundred times
as long as the hooks, and varies by more than they cost. So it is left out, and the step is timed with the hooks and without
them, in turn. The cost is printed next to the time of a real step; the exit code is 1 if it exceeds ``--most-us``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from statistics import quantiles
from time import perf_counter_ns
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from traceview.capture.steps.hooks import DATASET_NEXT, DISTRIBUTED_NEXT, FUNCTION_CALL, Hooks
from traceview.capture.steps.observer import Observer
from traceview.capture.steps.step_inputs import StepInputs
from traceview.capture.window.ranges import StepRange
from traceview.capture.window.step_window import StepWindow

ROUNDS = 50
FAR = 1 << 40


class Nothing:
    """The recording of a window that never opens."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: the window opened")


class Result:
    """What Keras asks of a result."""

    @staticmethod
    def has_value() -> bool:
        return True

    @staticmethod
    def get_value() -> None:
        return None


def loops(tf: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Kinds of loops by name: what shows them to new hooks, and one step with its wait for input."""
    weights = tf.Variable(tf.ones([8, 1]))
    batch = tf.ones([4, 8])

    def gradient_step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ weights)
        weights.assign_sub(0.001 * tape.gradient(loss, weights))

    plain = tf.function(gradient_step)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    replicated = tf.function(lambda x: strategy.run(gradient_step, args=(x,)))
    data = tf.data.Dataset.from_tensors(batch).repeat()
    batches = iter(data)
    distributed = iter(strategy.experimental_distribute_dataset(data))
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    pairs = iter(tf.data.Dataset.from_tensors((batch, tf.ones([4, 1]))).repeat())
    # `make_train_function` is looked up when it is called, because the hooks replace it.
    return {
        "tf.function": (lambda: None, lambda: plain(next(batches))),
        "strategy.run in tf.function": (lambda: None, lambda: replicated(next(distributed))),
        "Keras train function": (
            lambda: model.make_train_function(),
            lambda: model.train_function(pairs),
        ),
        **(
            {"Keras fit": (lambda: model.make_train_function(), fit_step(model, pairs))}
            if has_backends()
            else {}
        ),
    }


def has_backends() -> bool:
    """Whether this is Keras 3; in Keras 2 `keras.src.backend` is a module, in which nothing can be looked for."""
    package = find_spec("keras.src.backend")
    return package is not None and package.submodule_search_locations is not None


def fit_step(model: Any, pairs: Any) -> Callable[[], Any]:
    """A step as in Keras' `fit`: its epoch iterator hands out the call, its train function runs it."""
    trainer = import_module("keras.src.backend.tensorflow.trainer")
    epoch = trainer.TFEpochIterator.__new__(trainer.TFEpochIterator)
    epoch._num_batches, epoch._steps_seen = FAR, 0
    epoch._epoch_iterator = repeat((0, 1, pairs))

    def step() -> None:
        _, _, iterator = next(epoch)
        model.train_function(iterator)

    return step


def nanoseconds(step: Callable[[], Any], calls: int) -> float:
    """Nanoseconds of a step, mean of a short round."""
    begun = perf_counter_ns()
    for _ in range(calls):
        step()
    return (perf_counter_ns() - begun) / calls


def undisturbed(rounds: list[float]) -> float:
    """Of the means of short rounds, the 10th percentile."""
    return quantiles(rounds, n=10)[0]


@contextmanager
def empty_methods() -> Iterator[None]:
    """Make calls of functions and requests for input return at once."""
    with ExitStack() as stack:
        for place in (FUNCTION_CALL, DATASET_NEXT, DISTRIBUTED_NEXT):
            owner = getattr(import_module(place.module), place.class_name)
            empty = patch.object(owner, place.method, lambda *_: Result)
            stack.enter_context(empty)
        yield


def cost(show: Callable[[], Any], step: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Nanoseconds of a real step without hooks, and nanoseconds that the hooks add.

    Rounds with and without hooks take turns, so that both see the same load of the machine.
    """
    window = StepWindow(StepRange(FAR, FAR + 1), Nothing())
    observer = Observer(window, (), StepInputs())

    @contextmanager
    def hooked() -> Iterator[None]:
        hooks = Hooks(observer)
        hooks.install()
        show()
        yield
        hooks.remove()

    with hooked():
        step()  # is traced, and recognized as a step from now on
    of_round = calls // ROUNDS
    real = undisturbed([nanoseconds(step, max(of_round // 10, 1)) for _ in range(ROUNDS)])
    without, taken = [], []
    with empty_methods():
        before = window.next_number
        for _ in range(ROUNDS):
            without.append(nanoseconds(step, of_round))
            with hooked():
                taken.append(nanoseconds(step, of_round))
    if window.next_number - before < of_round * ROUNDS:
        raise SystemExit(
            f"the hooks saw {window.next_number - before} of {of_round * ROUNDS} steps: nothing was measured"
        )
    return real, undisturbed(taken) - undisturbed(without)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=15_000, help="steps of each kind, each way")
    parser.add_argument(
        "--most-us", type=float, default=15.0, help="what the hooks may cost a step"
    )
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    worst = 0.0
    costs = {name: cost(show, step, options.calls) for name, (show, step) in loops(tf).items()}
    for name, (real, added) in costs.items():
        worst = max(worst, added / 1e3)
        print(
            f"{name:28} {added / 1e3:6.2f} µs of hooks in a step of {real / 1e3:8.1f} µs"
            f" ({added / real:.1%})"
        )
    print(f"most: {worst:.2f} µs per step, allowed: {options.most_us:g}")
    sys.exit(worst > options.most_us)


if __name__ == "__main__":
    main()
