"""A loop on two replicas; slow: a thread computes statistics of the data with NumPy, which takes one of the cores."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
history = numbers(400, 800)


def correlate(is_over: Event, results: list[Any]) -> None:
    while not is_over.is_set():
        ordered = np.sort(history, axis=0)
        results[:] = [np.percentile(ordered, (5, 50, 95)), np.abs(ordered).std()]


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 640, 640))
    is_over, results = Event(), [None]
    thread = Thread(target=correlate, args=(is_over, results), name="statistics", daemon=True)
    if is_slow:
        thread.start()
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
    is_over.set()
    if is_slow:
        thread.join()
