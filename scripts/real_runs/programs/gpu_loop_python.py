"""A loop on a GPU; slow: Python scores the batch between the steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.gpu_training import WIDTH, model_of, run_steps, sized, step_of
from scripts.real_runs.step_clock import StepClock
from scripts.real_runs.training import numbers

rows = numbers(sized(1024, 16), WIDTH)
names = [f"sample {number * 7919 % 10_007}" for number in range(12_000)]


def scored(number: int) -> int:
    counts: dict[str, int] = {}
    for name in names:
        key = name.replace("sample", str(number))[-4:]
        counts[key] = counts.get(key, 0) + 1
    return max(counts.values())


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(*model_of(WIDTH, 4))
    constant = tf.constant(rows)

    def train_step(number: int) -> Any:
        loss = step(constant)
        if is_slow:
            scored(number)
        return loss

    run_steps(clock, train_step)
