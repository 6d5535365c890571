"""A loop on two replicas; slow: other processes compute on the same cores."""

from __future__ import annotations

import os
import subprocess
import sys

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 640, 640))
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(len(os.sched_getaffinity(0)) * is_slow)]
    try:
        for _ in range(STEPS):
            step(rows)
            clock.step_ended()
    finally:
        for other in others:
            other.kill()
            other.wait()
