"""A loop on two replicas that takes batches from a queue; slow: the thread that fills it counts letters in Python."""

from __future__ import annotations

from itertools import pairwise
from queue import Full, Queue
from threading import Event, Thread
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, step_of

BATCH, FEATURES, LETTERS = 160, 256, 700

strategy = mirrored(2)
texts = ["".join(chr(97 + (row * place) % 26) for place in range(LETTERS)) for row in range(BATCH)]


def counted() -> Any:
    counts = np.zeros([BATCH, FEATURES], np.float32)
    for row, text in enumerate(texts):
        for first, second in pairwise(text):
            counts[row, (ord(first) * 31 + ord(second)) % FEATURES] += 1
    return counts


def produce(batches: Queue[Any], is_over: Event, is_slow: bool) -> None:
    ready = counted()
    while not is_over.is_set():
        batch = counted() if is_slow else ready
        while not is_over.is_set():
            try:
                batches.put(batch, timeout=0.1)
                break
            except Full:
                continue


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 640, 640))
    batches: Queue[Any] = Queue(2)
    is_over = Event()
    thread = Thread(target=produce, args=(batches, is_over, is_slow), name="loader", daemon=True)
    thread.start()
    for _ in range(STEPS):
        step(tf.constant(batches.get()))
        clock.step_ended()
    is_over.set()
    thread.join()
