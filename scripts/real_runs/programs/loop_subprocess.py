"""A loop on two replicas; slow: each step asks another program how much memory is free, and waits for its answer."""

from __future__ import annotations

import subprocess
from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES = 512, 256

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)


def free_memory() -> int:
    command = "for n in 1 2 3; do cat /proc/meminfo; done | grep MemFree"
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return int(answer.stdout.split()[1])


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 896, 896)
    step = step_of(strategy, model, optimizer)
    source: Any = iter(batches)
    free: list[int] = []
    for _ in range(STEPS):
        float(step(next(source)))
        if is_slow:
            free.append(free_memory())
        clock.step_ended()
