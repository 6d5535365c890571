"""A loop on two replicas; slow: a thread scores held-out rows with the model all the time, in a `tf.function` of its own."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, HELD_OUT, PAUSE_S = 192, 256, 768, 5.0

strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))
held_out = tf.constant(numbers(HELD_OUT, FEATURES, seed=2))


def score_until(is_over: Event, model: Any, pause_s: float) -> None:
    def score(batch: Any) -> Any:
        return tf.reduce_mean(tf.abs(model(batch, training=False) - batch))

    compiled_score = tf.function(score)
    best = float("inf")
    while not is_over.is_set():
        best = min(best, float(compiled_score(held_out)))
        is_over.wait(pause_s)


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 640, 640)
    step = step_of(strategy, model, optimizer)
    is_over = Event()
    pause_s = 0.0 if is_slow else PAUSE_S
    thread = Thread(target=score_until, args=(is_over, model, pause_s), name="scores", daemon=True)
    thread.start()
    for _ in range(STEPS):
        step(rows)
        clock.step_ended()
    is_over.set()
    thread.join()
