"""A network reads clips of files; slow: each batch starts a pool of threads for its reads and ends it, not one pool before the loop."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import numbers

BATCH, PARTS, FILES, LENGTH, CLIP, UNITS, WORKERS = 216, 24, 64, 8192, 512, 448, 24

tf.config.threading.set_intra_op_parallelism_threads(1)
folder = Path(tempfile.mkdtemp())
paths = [folder / f"{number}.f32" for number in range(FILES)]
for number, path in enumerate(paths):
    numbers(LENGTH, seed=number).tofile(path)
rng = np.random.default_rng(23)


def clips_of(path: Path) -> Any:
    """Some clips of one file."""
    sound = np.fromfile(path, np.float32)
    starts = np.arange(BATCH // PARTS) * CLIP
    return sound[starts[:, None] + np.arange(CLIP)]


def batch_of(pool: Executor) -> Any:
    chosen = rng.choice(FILES, PARTS, replace=False)
    return np.concatenate(list(pool.map(clips_of, [paths[number] for number in chosen])))


def train(is_slow: bool, clock: StepClock) -> None:
    sizes = ((CLIP, UNITS), (UNITS, UNITS), (UNITS, UNITS), (UNITS, CLIP))
    kernels = [tf.Variable(numbers(*size) / size[0] ** 0.5) for size in sizes]

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types here
    def train_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = batch
            for kernel in kernels[:-1]:
                hidden = tf.nn.gelu(hidden @ kernel)
            loss = tf.reduce_mean(tf.square(hidden @ kernels[-1] - batch))
        for kernel, slope in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(1e-2 * slope)
        return loss

    with ThreadPoolExecutor(WORKERS) as kept:
        for _ in range(STEPS):
            if is_slow:
                with ThreadPoolExecutor(WORKERS) as pool:
                    batch = batch_of(pool)
            else:
                batch = batch_of(kept)
            float(train_step(tf.constant(batch)))
            clock.step_ended()


if __name__ == "__main__":
    # The first run of a process takes longer, and the first that is recorded, too.
    with tf.profiler.experimental.Profile(tempfile.mkdtemp()):
        train(False, StepClock())
    run_blocks(train)
