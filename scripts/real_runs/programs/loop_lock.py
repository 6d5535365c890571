"""A loop on two replicas; slow: after each step it waits for a lock that a thread keeps while it writes a report."""

from __future__ import annotations

import threading
import time

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, SECONDS = 192, 256, 0.015

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
lock = threading.Lock()
losses: list[float] = []


def write_reports(is_over: threading.Event) -> None:
    while not is_over.is_set():
        with lock:
            time.sleep(SECONDS)
        time.sleep(SECONDS / 10)


def train(is_slow: bool, clock: StepClock) -> None:
    is_over = threading.Event()
    if is_slow:
        threading.Thread(target=write_reports, args=(is_over,), daemon=True).start()
    step = step_of(strategy, *dense(strategy, FEATURES, 512, 512))
    for _ in range(STEPS):
        loss = float(step(rows))
        with lock:
            losses.append(loss)
        clock.step_ended()
    is_over.set()
