"""A loop on two replicas; slow: after every fourth step a picture of all weights is compressed and written."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, PERIOD = 512, 256, 4

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)


def draw(model: Any, path: Path) -> None:
    weights = np.concatenate([value.numpy().ravel() for value in model.trainable_variables])
    low, high = weights.min(), weights.max()
    pixels = ((weights - low) / (high - low) * 255).astype(np.uint8)
    path.write_bytes(zlib.compress(pixels.tobytes(), 9))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 1024, 1024)
    step = step_of(strategy, model, optimizer)
    source: Any = iter(batches)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(STEPS):
            float(step(next(source)))
            if is_slow and number % PERIOD == 0:
                draw(model, Path(folder) / f"{number}.z")
            clock.step_ended()
