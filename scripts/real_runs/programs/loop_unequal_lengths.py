"""A loop on two replicas; slow: in each step one replica, by turns, gets texts that are three times as long."""

from __future__ import annotations

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

FEATURES, SHORT, LONG = 256, 96, 288

strategy = mirrored(2)
texts = {length: tf.constant(numbers(length, FEATURES)) for length in (SHORT, LONG)}


def lengths(step: int, is_slow: bool) -> list[int]:
    """Of both replicas; in two steps both get the same texts."""
    if is_slow:
        return [LONG, SHORT] if step % 2 else [SHORT, LONG]
    return [LONG, LONG] if step % 2 else [SHORT, SHORT]


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 640, 640), squared_error)
    for number in range(STEPS):
        of_replica = lengths(number, is_slow)
        batch = strategy.experimental_distribute_values_from_function(
            lambda context, of=of_replica: texts[of[context.replica_id_in_sync_group]]
        )
        step(batch)
        clock.step_ended()


if __name__ == "__main__":
    run_blocks(train)
