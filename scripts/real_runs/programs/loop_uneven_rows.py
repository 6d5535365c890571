"""A loop on two replicas; slow: one replica's layers also run on rows that only it has, so that the other waits."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, squared_error, step_of

BATCH, FEATURES = 256, 256

strategy = mirrored(2)
batches = tf.data.Dataset.from_tensors(numbers(BATCH, FEATURES)).cache().repeat().prefetch(2)
more = tf.constant(numbers(BATCH * 2, FEATURES, seed=4))


def train(is_slow: bool, clock: StepClock) -> None:
    model, optimizer = dense(strategy, FEATURES, 768, 768)

    def loss_of(model: Any, batch: Any) -> Any:
        loss = squared_error(model, batch)
        if is_slow and tf.distribute.get_replica_context().replica_id_in_sync_group == 0:
            loss += 0.1 * squared_error(model, more)
        return loss

    step = step_of(strategy, model, optimizer, loss_of)
    source: Any = iter(batches)
    for _ in range(STEPS):
        float(step(next(source)))
        clock.step_ended()
