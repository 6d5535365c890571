"""A residual network of nested modules; slow: each step's report counts the weights by walking through all modules, not once before."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH, WIDTH, BLOCKS, BRANCHES = 128, 320, 6, 3

tf.config.threading.set_intra_op_parallelism_threads(1)
recorded = tf.constant(numbers(BATCH * 6, WIDTH))


class Linear(tf.Module):  # type: ignore[misc]  # TensorFlow has no types here
    """A product and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(numbers(WIDTH, WIDTH) / WIDTH)
        self.bias = tf.Variable(tf.zeros([WIDTH]))

    def __call__(self, rows: Any) -> Any:
        return rows @ self.kernel + self.bias


class Block(tf.Module):  # type: ignore[misc]
    """Branches whose outputs are added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(0.1)
        self.branches = [Linear() for _ in range(BRANCHES)]

    def __call__(self, rows: Any) -> Any:
        return rows + self.scale * tf.add_n([tf.tanh(branch(rows)) for branch in self.branches])


class Network(tf.Module):  # type: ignore[misc]
    """Blocks in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [Block() for _ in range(BLOCKS)]

    def __call__(self, rows: Any) -> Any:
        for block in self.blocks:
            rows = block(rows)
        return rows


class Learner(tf.Module):  # type: ignore[misc]
    """A network that is trained, the one that it is compared with, and their average."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target, self.average = Network(), Network(), Network()


def count_of(model: Any) -> tuple[int, int]:
    """How many weights are trained, and how many there are."""
    trained, every = (
        sum(variable.shape.num_elements() for variable in variables)
        for variables in (model.trainable_variables, model.variables)
    )
    return trained, every


def train(is_slow: bool, clock: StepClock) -> None:
    learner = Learner()
    model = learner.online

    @tf.function  # type: ignore[untyped-decorator]
    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch) - tf.reverse(batch, [1])))
        variables = model.trainable_variables
        for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(1e-3 * slope)
        return loss

    weights, reports = count_of(learner), []
    dataset = tf.data.Dataset.from_tensor_slices(recorded).batch(BATCH).cache().repeat().prefetch(2)
    began = time.perf_counter()
    for batch in dataset.take(STEPS):
        loss = float(train_step(batch))
        ended = time.perf_counter()
        trained, every = count_of(learner) if is_slow else weights
        reports.append(
            f"loss {loss:.4f}, {6e-9 * trained * BATCH / (ended - began):.1f} GFLOP/s, {trained} of {every} weights"
        )
        began = ended
        clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
